# Programs that shall be small in memory link gRPC without TLS, protobuf and their other libraries statically:
#
#   gpusched_slim(gpu-agent)
#
# Of shared libraries a process keeps their start-up code, their tables and a page or more of each of sixty
# data segments resident; of archives only what it uses. An idle agent has half of the memory so (bench/RESULTS.md). Where
# an archive is missing, or they do not fit together, the program links the shared libraries like all others.
option(GPUSCHED_SLIM "link gpu-agent's libraries statically, for its memory" ON)

# The archives, or an empty list.
function(gpusched_find_archives result)
  set(archives "")
  foreach(name grpc++_unsecure grpc_unsecure gpr address_sorting upb cares re2 z protobuf yaml-cpp sodium)
    find_library(GPUSCHED_ARCHIVE_${name} lib${name}.a)
    mark_as_advanced(GPUSCHED_ARCHIVE_${name})
    if(NOT GPUSCHED_ARCHIVE_${name})
      message(STATUS "gpu-agent links shared libraries: there is no lib${name}.a")
      set(${result} "" PARENT_SCOPE)
      return()
    endif()
    list(APPEND archives ${GPUSCHED_ARCHIVE_${name}})
  endforeach()
  cmake_path(GET GPUSCHED_ARCHIVE_grpc++_unsecure PARENT_PATH folder)
  file(GLOB abseil ${folder}/libabsl_*.a)
  list(APPEND archives ${abseil})

  # The few lines need nearly all of them, and no header.
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES -Wl,--start-group ${archives} -Wl,--end-group Threads::Threads ${CMAKE_DL_LIBS})
  set(CMAKE_REQUIRED_LINK_OPTIONS -static-libstdc++ -static-libgcc)
  set(CMAKE_REQUIRED_QUIET ON)
  check_cxx_source_compiles(
    "extern \"C\" { void grpc_init(void); void grpc_shutdown(void); void* grpc_insecure_credentials_create(void); }
     int main() { grpc_init(); grpc_insecure_credentials_create(); grpc_shutdown(); }"
    GPUSCHED_ARCHIVES_FIT)
  if(NOT GPUSCHED_ARCHIVES_FIT)
    message(STATUS "gpu-agent links shared libraries: the archives of gRPC do not link")
    set(archives "")
  endif()
  set(${result} "${archives}" PARENT_SCOPE)
endfunction()

if(GPUSCHED_SLIM AND NOT GPUSCHED_SANITIZE AND NOT GPUSCHED_FUZZ)
  gpusched_find_archives(archives)
  if(archives)
    add_library(gpusched_archives INTERFACE)
    list(JOIN archives "," archives)
    target_link_libraries(gpusched_archives INTERFACE $<LINK_GROUP:RESCAN,${archives}> Threads::Threads)
  endif()
endif()

function(gpusched_slim target)
  if(TARGET gpusched_archives)
    set_target_properties(${target} PROPERTIES GPUSCHED_SLIM TRUE)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
  endif()
endfunction()

# What a room links: the shared LIBRARY, or the archives when the program is slim.
function(gpusched_slim_or result library)
  set(${result} "$<IF:$<BOOL:$<TARGET_PROPERTY:GPUSCHED_SLIM>>,gpusched_archives,${library}>" PARENT_SCOPE)
endfunction()
