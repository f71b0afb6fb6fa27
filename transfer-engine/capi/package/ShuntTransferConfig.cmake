# The transfer engine for C, found wherever its folder was put: target shunt::transfer. This file lies in
# cmake/ShuntTransfer of the folder of libraries.
get_filename_component(_shunt_transfer_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
get_filename_component(_shunt_transfer_prefix "${_shunt_transfer_lib}/@UP@" ABSOLUTE)
if(NOT TARGET shunt::transfer)
  add_library(shunt::transfer SHARED IMPORTED)
  set_target_properties(
    shunt::transfer
    PROPERTIES IMPORTED_LOCATION "${_shunt_transfer_lib}/libshunt_transfer.so.0"
               IMPORTED_SONAME libshunt_transfer.so.0
               INTERFACE_INCLUDE_DIRECTORIES "${_shunt_transfer_prefix}/include")
endif()
unset(_shunt_transfer_lib)
unset(_shunt_transfer_prefix)
