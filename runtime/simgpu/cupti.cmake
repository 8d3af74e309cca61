# The simulated CUPTI: lib/libcupti.so.13, over the door that observer.h describes.

# cuptiGetCallbackName answers from the header's own list of driver calls.
set(driver_cbid "CUPTI_DRIVER_TRACE_CBID_([A-Za-z0-9_]+) += [0-9]+,")
file(STRINGS "${CUDA_INCLUDE_DIR}/cupti_driver_cbid.h" lines REGEX "${driver_cbid}")
list(FILTER lines EXCLUDE REGEX "CBID_(INVALID|SIZE) ")
list(TRANSFORM lines REPLACE "^.*${driver_cbid}.*$" "CALL(\\1)\n")
string(JOIN "" driver_calls ${lines})
file(CONFIGURE OUTPUT cupti_driver_calls.inc CONTENT "${driver_calls}" @ONLY)

transit_preload_library(
    simgpu_cupti
    EXPORTS cupti.map
    SOURCES cupti_activity_api.cpp cupti_callback_api.cpp cupti_driver.cpp cupti_names.cpp
            cupti_observer.cpp cupti_record_queue.cpp faults.cpp
)
target_compile_definitions(simgpu_cupti PRIVATE CUPTI_LIB) # the header exports its own
target_include_directories(simgpu_cupti PRIVATE "${CMAKE_CURRENT_BINARY_DIR}")
# Its worker thread outlives a dlclose.
target_link_options(simgpu_cupti PRIVATE -Wl,-z,nodelete)
set_target_properties(
    simgpu_cupti
    PROPERTIES
        PREFIX ""
        OUTPUT_NAME libcupti.so.13 # also the SONAME
        SUFFIX ""
        LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/lib"
)
install(TARGETS simgpu_cupti LIBRARY DESTINATION transit/runtime/simgpu/lib)
