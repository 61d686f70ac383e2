# Programs tell by --version the commit that they were built from, and its date:
#
#   gpusched_tell_commit(gpu-cli)
#
# Without a repository nothing is told, unless -DGPUSCHED_COMMIT="1a2b3c4d5e6f of 2026-11-28" says what.
# This file is also the script that writes the source at each build, and touches it only when it changes.
if(CMAKE_SCRIPT_MODE_FILE)
  set(commit "${GPUSCHED_COMMIT}")
  if(NOT commit AND EXISTS ${SOURCE}/.git)
    # The owner of the checkout may be somebody else than who builds.
    set(git ${GIT} -c "safe.directory=*" -C ${SOURCE})
    execute_process(COMMAND ${git} log -1 --no-show-signature --abbrev=12 --date=short "--format=%h of %cd"
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${git} diff --quiet HEAD -- src proto cmake CMakeLists.txt RESULT_VARIABLE changed
                    OUTPUT_QUIET ERROR_QUIET)
    if(commit AND changed EQUAL 1)
      string(APPEND commit ", changed since")
    endif()
  endif()
  set(text "extern \"C\" const char* gpusched_commit();\nextern \"C\" const char* gpusched_commit() { return \"${commit}\"; }\n")
  if(EXISTS ${OUT})
    file(READ ${OUT} old)
  endif()
  if(NOT text STREQUAL "${old}")
    file(WRITE ${OUT} "${text}")
  endif()
  return()
endif()

set(GPUSCHED_COMMIT "" CACHE STRING "the commit that programs tell by --version; empty: as git says")
find_program(GIT_PROGRAM git)
mark_as_advanced(GIT_PROGRAM)
set(GPUSCHED_COMMIT_FILE ${PROJECT_BINARY_DIR}/commit.cc)
add_custom_target(gpusched_commit
                  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUT=${GPUSCHED_COMMIT_FILE} -DGIT=${GIT_PROGRAM}
                          -DGPUSCHED_COMMIT=${GPUSCHED_COMMIT} -P ${PROJECT_SOURCE_DIR}/cmake/Commit.cmake
                  BYPRODUCTS ${GPUSCHED_COMMIT_FILE} COMMENT "commit" VERBATIM)

function(gpusched_tell_commit target)
  target_sources(${target} PRIVATE ${GPUSCHED_COMMIT_FILE})
  set_source_files_properties(${GPUSCHED_COMMIT_FILE} PROPERTIES GENERATED TRUE SKIP_UNITY_BUILD_INCLUSION TRUE)
  add_dependencies(${target} gpusched_commit)
endfunction()
