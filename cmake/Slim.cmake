# Programs that need nothing but the C library of the system they run on:
#
#   gpusched_slim(gpu-agent)          links gRPC without TLS and its other libraries statically
#   gpusched_slim(gpu-scheduler TLS)  also gRPC's TLS, OpenSSL, Boost.JSON and utf8proc
#
# Such a program runs on every system whose C library is not older, and is small in memory: of shared libraries a process
# keeps their start-up code, their tables and a page or more of each of sixty data segments resident; of archives only
# what it uses. An idle agent has half of the memory so (bench/RESULTS.md). Where an archive is missing, or they do not
# fit together, the program links the shared libraries like all others.
option(GPUSCHED_SLIM "link the libraries of gpu-scheduler and gpu-agent statically" ON)

# gpusched_find_archives(RESULT PROGRAM CALL NAME...): the archives libNAME.a and Abseil's, or an empty list. `CALL` is a
# function of gRPC's whose program needs nearly all of them.
function(gpusched_find_archives result program call)
  set(archives "")
  foreach(name IN LISTS ARGN)
    find_library(GPUSCHED_ARCHIVE_${name} lib${name}.a)
    mark_as_advanced(GPUSCHED_ARCHIVE_${name})
    if(NOT GPUSCHED_ARCHIVE_${name})
      message(STATUS "${program} links shared libraries: there is no lib${name}.a")
      set(${result} "" PARENT_SCOPE)
      return()
    endif()
    list(APPEND archives ${GPUSCHED_ARCHIVE_${name}})
  endforeach()
  cmake_path(GET GPUSCHED_ARCHIVE_protobuf PARENT_PATH folder)
  file(GLOB abseil ${folder}/libabsl_*.a)
  list(APPEND archives ${abseil})

  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES -Wl,--start-group ${archives} -Wl,--end-group Threads::Threads ${CMAKE_DL_LIBS})
  set(CMAKE_REQUIRED_LINK_OPTIONS -static-libstdc++ -static-libgcc)
  set(CMAKE_REQUIRED_QUIET ON)
  check_cxx_source_compiles(
    "extern \"C\" { void grpc_init(void); void grpc_shutdown(void); void* ${call}(void*, void*, void*, void*); }
     int main() { grpc_init(); ${call}(nullptr, nullptr, nullptr, nullptr); grpc_shutdown(); }"
    GPUSCHED_ARCHIVES_OF_${program}_FIT)
  if(NOT GPUSCHED_ARCHIVES_OF_${program}_FIT)
    message(STATUS "${program} links shared libraries: the archives of gRPC do not link")
    set(archives "")
  endif()
  set(${result} "${archives}" PARENT_SCOPE)
endfunction()

# gpusched_slim(TARGET [TLS]): see above.
function(gpusched_slim target)
  if(NOT GPUSCHED_SLIM OR GPUSCHED_SANITIZE OR GPUSCHED_FUZZ)
    return()
  endif()
  set(common address_sorting upb cares re2 z protobuf yaml-cpp sodium)
  if("TLS" IN_LIST ARGN)
    gpusched_find_archives(archives ${target} grpc_ssl_credentials_create
                           grpc++ grpc gpr ${common} ssl crypto boost_json boost_container utf8proc)
  else()
    gpusched_find_archives(archives ${target} grpc_insecure_credentials_create grpc++_unsecure grpc_unsecure gpr ${common})
  endif()
  if(NOT archives)
    return()
  endif()
  add_library(gpusched_archives_of_${target} INTERFACE)
  list(JOIN archives "," archives)
  target_link_libraries(gpusched_archives_of_${target}
                        INTERFACE $<LINK_GROUP:RESCAN,${archives}> Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES GPUSCHED_ARCHIVES gpusched_archives_of_${target} GPUSCHED_STATIC_TLS TRUE)
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
endfunction()

# gpusched_slim_yaml(TARGET): the same for a program that needs yaml-cpp, libsodium and OpenSSL alone.
function(gpusched_slim_yaml target)
  if(NOT GPUSCHED_SLIM OR GPUSCHED_SANITIZE OR GPUSCHED_FUZZ)
    return()
  endif()
  find_library(GPUSCHED_ARCHIVE_yaml-cpp libyaml-cpp.a)
  find_library(GPUSCHED_ARCHIVE_sodium libsodium.a)
  if(NOT GPUSCHED_ARCHIVE_yaml-cpp OR NOT GPUSCHED_ARCHIVE_sodium)
    message(STATUS "${target} links shared libraries: there is no libyaml-cpp.a or libsodium.a")
    return()
  endif()
  add_library(gpusched_archives_of_${target} INTERFACE)
  target_link_libraries(gpusched_archives_of_${target} INTERFACE ${GPUSCHED_ARCHIVE_yaml-cpp} ${GPUSCHED_ARCHIVE_sodium} Threads::Threads)
  set_target_properties(${target} PROPERTIES GPUSCHED_ARCHIVES gpusched_archives_of_${target} GPUSCHED_STATIC_TLS TRUE)
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
endfunction()

# What a room links: the shared LIBRARY, or the archives when the program is slim.
function(gpusched_slim_or result library)
  set(archives "$<TARGET_PROPERTY:GPUSCHED_ARCHIVES>")
  set(${result} "$<IF:$<BOOL:${archives}>,${archives},${library}>" PARENT_SCOPE)
endfunction()
