# transit_preload_library(NAME EXPORTS map SOURCES ...): a shared object that lives in
# somebody else's process. It shows only the symbols of its version script and needs only
# libc, so that it never drags a libstdc++ or a CUDA library in before the job's own.
function(transit_preload_library name)
    cmake_parse_arguments(arg "" "EXPORTS;SONAME" "SOURCES" ${ARGN})
    add_library(${name} SHARED ${arg_SOURCES})
    target_compile_features(${name} PRIVATE cxx_std_17)
    target_compile_options(
        ${name}
        PRIVATE -Wall -Wextra -Wpedantic -Wshadow -fno-rtti
    )
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${name} PRIVATE CUDA::headers Threads::Threads ${CMAKE_DL_LIBS})
    target_link_options(
        ${name}
        PRIVATE
            -static-libstdc++
            -static-libgcc
            "-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/${arg_EXPORTS}"
    )
    if(TRANSIT_SANITIZE)
        # CUDA's enumerations may hold what only a newer driver's header knows.
        target_compile_options(
            ${name}
            PRIVATE
                -fsanitize=${TRANSIT_SANITIZE}
                -fno-sanitize=enum
                -fno-omit-frame-pointer
        )
        target_link_options(${name} PRIVATE -fsanitize=${TRANSIT_SANITIZE})
    else()
        target_link_options(${name} PRIVATE -Wl,-z,defs)
    endif()
    set_target_properties(
        ${name}
        PROPERTIES
            CXX_VISIBILITY_PRESET hidden
            VISIBILITY_INLINES_HIDDEN ON
            CXX_EXTENSIONS OFF
            LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${arg_EXPORTS}"
    )
endfunction()
