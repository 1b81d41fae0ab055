// The entry of CloudNativePG's catalog of extension images, which are made of
// the packages of the PostgreSQL Global Development Group.
metadata = {
  name                     = "dirty-throttle"
  sql_name                 = "dirty_throttle"
  image_name               = "dirty-throttle"
  licenses                 = ["PostgreSQL"]
  shared_preload_libraries = ["dirty_throttle"]
  extension_control_path   = []
  dynamic_library_path     = []
  ld_library_path          = []
  bin_path                 = []
  auto_update_os_libs      = false
  required_extensions      = []
  create_extension         = true

  versions = {
    bookworm = {
      "18" = {
        package = "1.0-1.pgdg12+1"
        sql     = "1.0"
      }
    }
    trixie = {
      "18" = {
        package = "1.0-1.pgdg13+1"
        sql     = "1.0"
      }
    }
  }
}
