# The native libraries: what the system has is used; what it has not is fetched with a pinned hash. Offline, the message
# names the package to install. Each ends as fastshard::NAME.
include(FetchContent)

function(fastshard_system_library name header library)
  find_path(FASTSHARD_${name}_INCLUDE ${header})
  find_library(FASTSHARD_${name}_LIBRARY ${library})
  mark_as_advanced(FASTSHARD_${name}_INCLUDE FASTSHARD_${name}_LIBRARY)
  if(FASTSHARD_${name}_INCLUDE AND FASTSHARD_${name}_LIBRARY)
    add_library(fastshard::${name} INTERFACE IMPORTED GLOBAL)
    set_target_properties(fastshard::${name} PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${FASTSHARD_${name}_INCLUDE}"
      INTERFACE_LINK_LIBRARIES "${FASTSHARD_${name}_LIBRARY}")
  endif()
endfunction()

fastshard_system_library(zstd zstd.h zstd)
fastshard_system_library(lz4 lz4frame.h lz4)
fastshard_system_library(xxhash xxhash.h xxhash)

# What was not found on the system (FetchContent; the hashes are of the upstream release archives) is added here.
