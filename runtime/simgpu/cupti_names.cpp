// The names CUPTI gives to its results and to driver calls.
#include <cupti.h>

#define RESULT(name) \
  case name:         \
    *text = #name;   \
    return CUPTI_SUCCESS

CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  if (!text) return CUPTI_ERROR_INVALID_PARAMETER;
  switch (result) {
    RESULT(CUPTI_SUCCESS);
    RESULT(CUPTI_ERROR_INVALID_PARAMETER);
    RESULT(CUPTI_ERROR_INVALID_DEVICE);
    RESULT(CUPTI_ERROR_INVALID_CONTEXT);
    RESULT(CUPTI_ERROR_INVALID_OPERATION);
    RESULT(CUPTI_ERROR_OUT_OF_MEMORY);
    RESULT(CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT);
    RESULT(CUPTI_ERROR_API_NOT_IMPLEMENTED);
    RESULT(CUPTI_ERROR_MAX_LIMIT_REACHED);
    RESULT(CUPTI_ERROR_NOT_READY);
    RESULT(CUPTI_ERROR_NOT_COMPATIBLE);
    RESULT(CUPTI_ERROR_NOT_INITIALIZED);
    RESULT(CUPTI_ERROR_INVALID_STREAM);
    RESULT(CUPTI_ERROR_INVALID_KIND);
    RESULT(CUPTI_ERROR_NOT_SUPPORTED);
    RESULT(CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED);
    RESULT(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    RESULT(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    RESULT(CUPTI_ERROR_UNKNOWN);
    default:
      *text = "<unknown>";
      return CUPTI_ERROR_INVALID_PARAMETER;
  }
}

#define CALL(name)                     \
  case CUPTI_DRIVER_TRACE_CBID_##name: \
    *text = #name;                     \
    return CUPTI_SUCCESS;

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid,
                                 const char** text) {
  if (!text || domain != CUPTI_CB_DOMAIN_DRIVER_API)
    return CUPTI_ERROR_INVALID_PARAMETER;
  switch (cbid) {
    CALL(INVALID)
#include "cupti_driver_calls.inc"
    default:
      return CUPTI_ERROR_INVALID_PARAMETER;
  }
}
