/* Values that are queried by field id. */
#include "mig.h"

static unsigned long long link_errors(const struct target *target)
{
	unsigned long long sum = 0;

	for (unsigned link = 0; link < target->model->link_max; link++)
		sum += target->state.link_errors[link];
	return sum;
}

static void wide(nvmlFieldValue_t *field, unsigned long long value)
{
	field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
	field->value.ullVal = value;
}

/* read_field fills one value; its return code reports whether the field exists. */
static void read_field(const struct target *target, nvmlFieldValue_t *field)
{
	field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
	field->nvmlReturn = NVML_SUCCESS;
	switch (field->fieldId) {
	case NVML_FI_DEV_NVLINK_LINK_COUNT:
		field->value.uiVal = target->model->link_max;
		field->nvmlReturn = target->part->link_count ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
		break;
	case NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED:
		field->value.uiVal = resetless_mig(target);
		break;
	case NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE:
		field->value.uiVal = target->model->profile_count > 0;
		break;
	case NVML_FI_DEV_REMAPPED_COR:
		wide(field, target->state.remap_correctable);
		break;
	case NVML_FI_DEV_REMAPPED_UNC:
		wide(field, target->state.remap_uncorrectable);
		break;
	case NVML_FI_DEV_REMAPPED_PENDING:
		wide(field, target->state.remap_pending);
		break;
	case NVML_FI_DEV_REMAPPED_FAILURE:
		wide(field, target->state.remap_failed);
		break;
	case NVML_FI_DEV_POWER_INSTANT:
		field->value.uiVal = target->state.sensors.milli_watt;
		break;
	case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
		wide(field, target->state.sensors.energy_mj);
		break;
	case NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL:
		wide(field, link_errors(target));
		field->nvmlReturn = target->part->link_count ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
		break;
#ifndef OLD_DRIVER
	case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
		field->value.uiVal = target->state.recovery_action;
		break;
#endif
	default:
		field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
	}
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
	struct target target;

	ENTER_GPU(&target, values && count > 0);
	for (int i = 0; i < count; i++)
		read_field(&target, &values[i]);
	return NVML_SUCCESS;
}
