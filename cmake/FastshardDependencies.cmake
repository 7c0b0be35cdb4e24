# The native libraries, each as fastshard::NAME: what the system has is used; what it has not is fetched from its upstream
# release and checked against a pinned hash. Without a network, the message names the package to install.
#
#   -DFASTSHARD_FORCE_FETCH=ON        ignore what the system has
#   -DFASTSHARD_ARCHIVES=DIR          look for the release archives in DIR (a folder or a URL) before upstream
#   -DFETCHCONTENT_SOURCE_DIR_ZSTD=DIR, ..._LZ4=DIR, ..._XXHASH=DIR      use an unpacked source tree
include(FetchContent)

option(FASTSHARD_FORCE_FETCH "Fetch zstd, lz4 and xxHash even if the system has them" OFF)
set(FASTSHARD_ARCHIVES "" CACHE STRING "Folder or URL that holds the release archives of the native libraries")
mark_as_advanced(FASTSHARD_FORCE_FETCH FASTSHARD_ARCHIVES)

# Defines fastshard::NAME if HEADER (and LIBRARY, where given) are on the system. A header-only use gives no LIBRARY.
function(fastshard_system_library name header library)
  if(FASTSHARD_FORCE_FETCH)
    return()
  endif()
  find_path(FASTSHARD_${name}_INCLUDE ${header})
  mark_as_advanced(FASTSHARD_${name}_INCLUDE)
  if(NOT FASTSHARD_${name}_INCLUDE)
    return()
  endif()
  if(library)
    find_library(FASTSHARD_${name}_LIBRARY ${library})
    mark_as_advanced(FASTSHARD_${name}_LIBRARY)
    if(NOT FASTSHARD_${name}_LIBRARY)
      return()
    endif()
  endif()
  add_library(fastshard::${name} INTERFACE IMPORTED GLOBAL)
  set_target_properties(fastshard::${name} PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${FASTSHARD_${name}_INCLUDE}"
    INTERFACE_LINK_LIBRARIES "${FASTSHARD_${name}_LIBRARY}")
  message(STATUS "fastshard: ${name} of the system: ${FASTSHARD_${name}_INCLUDE}/${header}")
endfunction()

# Sets SOURCE_DIR to the unpacked sources of NAME.
function(fastshard_fetch name source_dir archive url sha256 packages)
  string(TOUPPER ${name} upper)
  if(NOT FETCHCONTENT_SOURCE_DIR_${upper})
    set(file "${CMAKE_BINARY_DIR}/archives/${archive}")
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/archives")
    set(tried "")
    foreach(origin IN LISTS FASTSHARD_ARCHIVES url)
      set(found "")
      if(EXISTS "${file}")
        file(SHA256 "${file}" found)
      endif()
      if(found STREQUAL sha256)
        break()
      endif()
      if(NOT origin STREQUAL url)
        set(origin "${origin}/${archive}")
      endif()
      if(EXISTS "${origin}")
        file(COPY_FILE "${origin}" "${file}.part")
      else()
        message(STATUS "fastshard: ${name}: fetching ${origin}")
        file(DOWNLOAD "${origin}" "${file}.part" TIMEOUT 120 INACTIVITY_TIMEOUT 20 STATUS status)
        list(GET status 0 code)
        if(NOT code EQUAL 0)
          list(GET status 1 reason)
          string(APPEND tried "\n  ${origin}: ${reason}")
          continue()
        endif()
      endif()
      file(SHA256 "${file}.part" found)
      if(NOT found STREQUAL sha256)
        string(APPEND tried "\n  ${origin}: its SHA256 is ${found}, expected ${sha256}")
        continue()
      endif()
      file(RENAME "${file}.part" "${file}")
    endforeach()
    if(NOT found STREQUAL sha256)
      message(FATAL_ERROR
        "fastshard needs ${name}, found none on this system, and could not fetch it:${tried}\n"
        "Install it and try again: apt-get install ${packages}\n"
        "(or put ${archive} into a folder and configure with -DFASTSHARD_ARCHIVES=FOLDER)")
    endif()
    set(location URL "${file}" URL_HASH "SHA256=${sha256}" DOWNLOAD_EXTRACT_TIMESTAMP TRUE)
  endif()
  # No subdirectory of the sources is a project here: the targets below compile the few files that are needed.
  FetchContent_Declare(${name} ${location} SOURCE_SUBDIR none)
  FetchContent_MakeAvailable(${name})
  message(STATUS "fastshard: ${name} built from ${${name}_SOURCE_DIR}")
  set(${source_dir} "${${name}_SOURCE_DIR}" PARENT_SCOPE)
endfunction()

fastshard_system_library(zstd zstd.h zstd)
fastshard_system_library(lz4 lz4frame.h lz4)
fastshard_system_library(xxhash xxhash.h "")
fastshard_system_library(uring liburing.h uring)  # optional: without it the engine of threads reads

if(NOT TARGET fastshard::zstd)
  fastshard_fetch(zstd zstd_dir zstd-1.5.7.tar.gz
    "https://github.com/facebook/zstd/releases/download/v1.5.7/zstd-1.5.7.tar.gz"
    eb33e51f49a15e023950cd7825ca74a4a2b43db8354825ac24fc1b7ee09e6fa3 libzstd-dev)
  file(GLOB zstd_sources "${zstd_dir}/lib/common/*.c" "${zstd_dir}/lib/decompress/*.c")  # the core only reads
  add_library(fastshard_zstd STATIC EXCLUDE_FROM_ALL ${zstd_sources})
  target_compile_definitions(fastshard_zstd PRIVATE ZSTD_DISABLE_ASM ZSTDLIB_VISIBLE= XXH_NAMESPACE=ZSTD_)
  set_target_properties(fastshard_zstd PROPERTIES C_VISIBILITY_PRESET hidden)
  target_include_directories(fastshard_zstd SYSTEM PUBLIC "${zstd_dir}/lib")
  add_library(fastshard::zstd ALIAS fastshard_zstd)
endif()

if(NOT TARGET fastshard::lz4)
  fastshard_fetch(lz4 lz4_dir lz4-1.10.0.tar.gz
    "https://github.com/lz4/lz4/archive/refs/tags/v1.10.0.tar.gz"
    537512904744b35e232912055ccf8ec66d768639ff3abe5788d90d792ec5f48b liblz4-dev)
  add_library(fastshard_lz4 STATIC EXCLUDE_FROM_ALL
    "${lz4_dir}/lib/lz4.c" "${lz4_dir}/lib/lz4hc.c" "${lz4_dir}/lib/lz4frame.c" "${lz4_dir}/lib/xxhash.c")
  target_compile_definitions(fastshard_lz4 PRIVATE LZ4LIB_VISIBILITY= XXH_NAMESPACE=LZ4_)
  set_target_properties(fastshard_lz4 PROPERTIES C_VISIBILITY_PRESET hidden)
  # Beside its own headers lz4 carries an old xxhash.h, which must not hide the one that the core includes.
  foreach(header lz4.h lz4hc.h lz4frame.h)
    configure_file("${lz4_dir}/lib/${header}" "${CMAKE_BINARY_DIR}/lz4-include/${header}" COPYONLY)
  endforeach()
  target_include_directories(fastshard_lz4 SYSTEM PUBLIC "${CMAKE_BINARY_DIR}/lz4-include")
  add_library(fastshard::lz4 ALIAS fastshard_lz4)
endif()

if(NOT TARGET fastshard::xxhash)
  fastshard_fetch(xxhash xxhash_dir xxhash-0.8.3.tar.gz
    "https://github.com/Cyan4973/xxHash/archive/refs/tags/v0.8.3.tar.gz"
    aae608dfe8213dfd05d909a57718ef82f30722c392344583d3f39050c7f29a80 libxxhash-dev)
  add_library(fastshard_xxhash INTERFACE)
  target_include_directories(fastshard_xxhash SYSTEM INTERFACE "${xxhash_dir}")
  add_library(fastshard::xxhash ALIAS fastshard_xxhash)
endif()
