# Shunt's library in NVSHMEM's place, found wherever its folder was put.
get_filename_component(_shunt_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(NVSHMEM_INCLUDE_DIR "${_shunt_prefix}/include")
set(NVSHMEM_HOST_LIB "${_shunt_prefix}/lib/libshunt_nvshmem.so.3")
if(NOT TARGET nvshmem::nvshmem_host)
  add_library(nvshmem::nvshmem_host SHARED IMPORTED)
  set_target_properties(
    nvshmem::nvshmem_host
    PROPERTIES IMPORTED_LOCATION "${NVSHMEM_HOST_LIB}"
               IMPORTED_SONAME libshunt_nvshmem.so.3
               INTERFACE_INCLUDE_DIRECTORIES "${NVSHMEM_INCLUDE_DIR}")
endif()
unset(_shunt_prefix)
