// Every symbol of the simulated driver with the CUDA version that brought it: the base
// name that cuGetProcAddress knows it by, the exported symbol, its per-thread-stream
// variant if it has one, and the version.
#pragma once

#define SIMGPU_PLAIN_SYMBOLS(X)                                                     \
  X(cuDriverGetVersion, cuDriverGetVersion, 2020)                                   \
  X(cuGetErrorName, cuGetErrorName, 6000)                                           \
  X(cuGetErrorString, cuGetErrorString, 6000)                                       \
  X(cuGetExportTable, cuGetExportTable, 3000)                                       \
  X(cuGetProcAddress, cuGetProcAddress, 11030)                                      \
  X(cuGetProcAddress, cuGetProcAddress_v2, 12000)                                   \
  X(cuInit, cuInit, 2000)                                                           \
  X(cuCtxCreate, cuCtxCreate_v2, 3020)                                              \
  X(cuCtxCreate, cuCtxCreate_v4, 12050)                                             \
  X(cuCtxDestroy, cuCtxDestroy_v2, 4000)                                            \
  X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000)                             \
  X(cuCtxGetApiVersion, cuCtxGetApiVersion, 3020)                                   \
  X(cuCtxGetCurrent, cuCtxGetCurrent, 4000)                                         \
  X(cuCtxGetDevice, cuCtxGetDevice, 2000)                                           \
  X(cuCtxGetFlags, cuCtxGetFlags, 7000)                                             \
  X(cuCtxGetId, cuCtxGetId, 12000)                                                  \
  X(cuCtxGetLimit, cuCtxGetLimit, 3010)                                             \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050)                 \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000)                                      \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000)                                    \
  X(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                                         \
  X(cuCtxSetLimit, cuCtxSetLimit, 3010)                                             \
  X(cuCtxSynchronize, cuCtxSynchronize, 2000)                                       \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000)                             \
  X(cuDeviceComputeCapability, cuDeviceComputeCapability, 2000)                     \
  X(cuDeviceGet, cuDeviceGet, 2000)                                                 \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000)                               \
  X(cuDeviceGetCount, cuDeviceGetCount, 2000)                                       \
  X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020)                    \
  X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020)                                  \
  X(cuDeviceGetName, cuDeviceGetName, 2000)                                         \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010)                                 \
  X(cuDeviceGetUuid, cuDeviceGetUuid, 9020)                                         \
  X(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040)                                     \
  X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000)                   \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000)                 \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000)                     \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)                       \
  X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, 11000)               \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020)                                    \
  X(cuEventCreate, cuEventCreate, 2000)                                             \
  X(cuEventDestroy, cuEventDestroy_v2, 4000)                                        \
  X(cuEventElapsedTime, cuEventElapsedTime, 2000)                                   \
  X(cuEventElapsedTime, cuEventElapsedTime_v2, 12080)                               \
  X(cuEventQuery, cuEventQuery, 2000)                                               \
  X(cuEventSynchronize, cuEventSynchronize, 2000)                                   \
  X(cuFuncGetAttribute, cuFuncGetAttribute, 2020)                                   \
  X(cuFuncGetModule, cuFuncGetModule, 11000)                                        \
  X(cuFuncGetName, cuFuncGetName, 12030)                                            \
  X(cuFuncGetParamInfo, cuFuncGetParamInfo, 12040)                                  \
  X(cuFuncIsLoaded, cuFuncIsLoaded, 12040)                                          \
  X(cuFuncLoad, cuFuncLoad, 12040)                                                  \
  X(cuFuncSetAttribute, cuFuncSetAttribute, 9000)                                   \
  X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000)                      \
  X(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000)            \
  X(cuGraphClone, cuGraphClone, 10000)                                              \
  X(cuGraphCreate, cuGraphCreate, 10000)                                            \
  X(cuGraphDestroy, cuGraphDestroy, 10000)                                          \
  X(cuGraphExecDestroy, cuGraphExecDestroy, 10000)                                  \
  X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, 12000)       \
  X(cuGraphExecUpdate, cuGraphExecUpdate_v2, 12000)                                 \
  X(cuGraphGetNodes, cuGraphGetNodes, 10000)                                        \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040)                \
  X(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2, 12000)               \
  X(cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams, 10000)                  \
  X(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, 10000)                  \
  X(cuGraphNodeGetType, cuGraphNodeGetType, 10000)                                  \
  X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010)                                     \
  X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000)                               \
  X(cuKernelGetAttribute, cuKernelGetAttribute, 12000)                              \
  X(cuKernelGetFunction, cuKernelGetFunction, 12000)                                \
  X(cuKernelGetName, cuKernelGetName, 12030)                                        \
  X(cuKernelGetParamInfo, cuKernelGetParamInfo, 12040)                              \
  X(cuLibraryGetKernel, cuLibraryGetKernel, 12000)                                  \
  X(cuLibraryGetModule, cuLibraryGetModule, 12000)                                  \
  X(cuLibraryLoadData, cuLibraryLoadData, 12000)                                    \
  X(cuLibraryUnload, cuLibraryUnload, 12000)                                        \
  X(cuMemAddressFree, cuMemAddressFree, 10020)                                      \
  X(cuMemAddressReserve, cuMemAddressReserve, 10020)                                \
  X(cuMemAdvise, cuMemAdvise, 8000)                                                 \
  X(cuMemAdvise, cuMemAdvise_v2, 12020)                                             \
  X(cuMemAlloc, cuMemAlloc_v2, 3020)                                                \
  X(cuMemAllocHost, cuMemAllocHost_v2, 3020)                                        \
  X(cuMemAllocManaged, cuMemAllocManaged, 6000)                                     \
  X(cuMemAllocPitch, cuMemAllocPitch_v2, 3020)                                      \
  X(cuMemCreate, cuMemCreate, 10020)                                                \
  X(cuMemFree, cuMemFree_v2, 3020)                                                  \
  X(cuMemFreeHost, cuMemFreeHost, 2000)                                             \
  X(cuMemGetAccess, cuMemGetAccess, 10020)                                          \
  X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020)                            \
  X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020)            \
  X(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, \
    10020)                                                                          \
  X(cuMemGetInfo, cuMemGetInfo_v2, 3020)                                            \
  X(cuMemHostAlloc, cuMemHostAlloc, 2020)                                           \
  X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020)                  \
  X(cuMemHostGetFlags, cuMemHostGetFlags, 2030)                                     \
  X(cuMemHostRegister, cuMemHostRegister_v2, 6050)                                  \
  X(cuMemHostUnregister, cuMemHostUnregister, 4000)                                 \
  X(cuMemMap, cuMemMap, 10020)                                                      \
  X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020)                                        \
  X(cuMemRangeGetAttribute, cuMemRangeGetAttribute, 8000)                           \
  X(cuMemRangeGetAttributes, cuMemRangeGetAttributes, 8000)                         \
  X(cuMemRelease, cuMemRelease, 10020)                                              \
  X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000)                \
  X(cuMemSetAccess, cuMemSetAccess, 10020)                                          \
  X(cuMemUnmap, cuMemUnmap, 10020)                                                  \
  X(cuModuleGetFunction, cuModuleGetFunction, 2000)                                 \
  X(cuModuleGetLoadingMode, cuModuleGetLoadingMode, 11070)                          \
  X(cuModuleLoad, cuModuleLoad, 2000)                                               \
  X(cuModuleLoadData, cuModuleLoadData, 2000)                                       \
  X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010)                                   \
  X(cuModuleUnload, cuModuleUnload, 2000)                                           \
  X(cuPointerGetAttribute, cuPointerGetAttribute, 4000)                             \
  X(cuPointerGetAttributes, cuPointerGetAttributes, 7000)                           \
  X(cuPointerSetAttribute, cuPointerSetAttribute, 6000)                             \
  X(cuProfilerStart, cuProfilerStart, 2000)                                         \
  X(cuProfilerStop, cuProfilerStop, 2000)                                           \
  X(cuStreamCreate, cuStreamCreate, 2000)                                           \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050)                   \
  X(cuStreamDestroy, cuStreamDestroy_v2, 4000)                                      \
  X(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled, 12000)                          \
  X(cuTensorMapReplaceAddress, cuTensorMapReplaceAddress, 12000)                    \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010)

#define SIMGPU_STREAM_SYMBOLS(X)                                             \
  X(cuEventRecord, cuEventRecord, ptsz, 2000)                                \
  X(cuEventRecordWithFlags, cuEventRecordWithFlags, ptsz, 11010)             \
  X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, ptsz, 12000) \
  X(cuGraphLaunch, cuGraphLaunch, ptsz, 10000)                               \
  X(cuGraphUpload, cuGraphUpload, ptsz, 11010)                               \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, ptsz, 9000)        \
  X(cuLaunchHostFunc, cuLaunchHostFunc, ptsz, 10000)                         \
  X(cuLaunchKernel, cuLaunchKernel, ptsz, 4000)                              \
  X(cuLaunchKernelEx, cuLaunchKernelEx, ptsz, 11060)                         \
  X(cuMemAllocAsync, cuMemAllocAsync, ptsz, 11020)                           \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, ptsz, 11020)           \
  X(cuMemFreeAsync, cuMemFreeAsync, ptsz, 11020)                             \
  X(cuMemPrefetchAsync, cuMemPrefetchAsync, ptsz, 8000)                      \
  X(cuMemPrefetchAsync, cuMemPrefetchAsync_v2, ptsz, 12020)                  \
  X(cuMemcpy, cuMemcpy, ptds, 4000)                                          \
  X(cuMemcpyAsync, cuMemcpyAsync, ptsz, 4000)                                \
  X(cuMemcpyDtoD, cuMemcpyDtoD_v2, ptds, 3020)                               \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, ptsz, 3020)                     \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, ptds, 3020)                               \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, ptsz, 3020)                     \
  X(cuMemcpyHtoD, cuMemcpyHtoD_v2, ptds, 3020)                               \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, ptsz, 3020)                     \
  X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, ptsz, 4000)                        \
  X(cuMemsetD16, cuMemsetD16_v2, ptds, 3020)                                 \
  X(cuMemsetD16Async, cuMemsetD16Async, ptsz, 3020)                          \
  X(cuMemsetD32, cuMemsetD32_v2, ptds, 3020)                                 \
  X(cuMemsetD32Async, cuMemsetD32Async, ptsz, 3020)                          \
  X(cuMemsetD8, cuMemsetD8_v2, ptds, 3020)                                   \
  X(cuMemsetD8Async, cuMemsetD8Async, ptsz, 3020)                            \
  X(cuStreamAddCallback, cuStreamAddCallback, ptsz, 5000)                    \
  X(cuStreamAttachMemAsync, cuStreamAttachMemAsync, ptsz, 6000)              \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, ptsz, 10010)              \
  X(cuStreamEndCapture, cuStreamEndCapture, ptsz, 10000)                     \
  X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, ptsz, 11030)          \
  X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v3, ptsz, 12030)          \
  X(cuStreamGetCtx, cuStreamGetCtx, ptsz, 9020)                              \
  X(cuStreamGetDevice, cuStreamGetDevice, ptsz, 12080)                       \
  X(cuStreamGetFlags, cuStreamGetFlags, ptsz, 5050)                          \
  X(cuStreamGetId, cuStreamGetId, ptsz, 12000)                               \
  X(cuStreamGetPriority, cuStreamGetPriority, ptsz, 5050)                    \
  X(cuStreamIsCapturing, cuStreamIsCapturing, ptsz, 10000)                   \
  X(cuStreamQuery, cuStreamQuery, ptsz, 2000)                                \
  X(cuStreamSynchronize, cuStreamSynchronize, ptsz, 2000)                    \
  X(cuStreamWaitEvent, cuStreamWaitEvent, ptsz, 3020)                        \
  X(cuStreamWaitValue32, cuStreamWaitValue32, ptsz, 8000)                    \
  X(cuStreamWaitValue32, cuStreamWaitValue32_v2, ptsz, 11070)                \
  X(cuStreamWaitValue64, cuStreamWaitValue64_v2, ptsz, 11070)                \
  X(cuStreamWriteValue32, cuStreamWriteValue32, ptsz, 8000)                  \
  X(cuStreamWriteValue32, cuStreamWriteValue32_v2, ptsz, 11070)              \
  X(cuStreamWriteValue64, cuStreamWriteValue64_v2, ptsz, 11070)
