# Shunt's library in NVSHMEM's place, found wherever its folder was put. Targets, as NVSHMEM's:
#   nvshmem::nvshmem_host    the host library
#   nvshmem::nvshmem_device  device code, for what is compiled with relocatable device code; where the folder has it
#   nvshmem::nvshmem         both
get_filename_component(_shunt_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(NVSHMEM_INCLUDE_DIR "${_shunt_prefix}/include")
set(NVSHMEM_HOST_LIB "${_shunt_prefix}/lib/libshunt_nvshmem.so.3")
set(NVSHMEM_DEVICE_LIB "${_shunt_prefix}/lib/libnvshmem_device.a")
if(NOT TARGET nvshmem::nvshmem_host)
  add_library(nvshmem::nvshmem_host SHARED IMPORTED)
  set_target_properties(
    nvshmem::nvshmem_host
    PROPERTIES IMPORTED_LOCATION "${NVSHMEM_HOST_LIB}"
               IMPORTED_SONAME libshunt_nvshmem.so.3
               INTERFACE_INCLUDE_DIRECTORIES "${NVSHMEM_INCLUDE_DIR}")
endif()
if(EXISTS "${NVSHMEM_DEVICE_LIB}" AND NOT TARGET nvshmem::nvshmem_device)
  add_library(nvshmem::nvshmem_device STATIC IMPORTED)
  set_target_properties(
    nvshmem::nvshmem_device
    PROPERTIES IMPORTED_LOCATION "${NVSHMEM_DEVICE_LIB}"
               IMPORTED_LINK_INTERFACE_LANGUAGES CUDA
               CUDA_SEPARABLE_COMPILATION ON
               INTERFACE_INCLUDE_DIRECTORIES "${NVSHMEM_INCLUDE_DIR}"
               INTERFACE_LINK_LIBRARIES nvshmem::nvshmem_host)
endif()
if(NOT TARGET nvshmem::nvshmem)
  add_library(nvshmem::nvshmem INTERFACE IMPORTED)
  set_target_properties(nvshmem::nvshmem PROPERTIES INTERFACE_LINK_LIBRARIES nvshmem::nvshmem_host)
  if(TARGET nvshmem::nvshmem_device)
    set_property(TARGET nvshmem::nvshmem APPEND PROPERTY INTERFACE_LINK_LIBRARIES nvshmem::nvshmem_device)
  endif()
endif()
unset(_shunt_prefix)
