#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: nvidia-smi [-i ID] [-L | -q | --query-gpu=FIELDS --format=csv[,noheader][,nounits] | -mig 0|1 | -c MODE | -pm 0|1 | -r]\n"
	"       nvidia-smi mig [-i ID] -lgip | -lgipp | -lgi | -lcip | -lci\n"
	"       nvidia-smi mig [-i ID] -cgi PROFILE[:START],... [-C] | -cci [PROFILE,...] [-gi ID,...]\n"
	"       nvidia-smi mig [-i ID] -dci [-gi ID,...] [-ci ID,...] | -dgi [-gi ID,...]\n"
	"       nvidia-smi compute-policy [-i ID] --set-timeslice 0|1|2|3 | --list\n";

static bool subcommand(struct arguments *arguments, const char *name)
{
	if (!arguments->count || strcmp(arguments->list[0], name))
		return false;
	arguments->list++;
	arguments->count--;
	return true;
}

static void gpu_command(struct arguments *arguments)
{
	struct gpus gpus = select_gpus(option(arguments, "-i", "--id"));
	const char *fields = option(arguments, "", "--query-gpu");
	const char *format = option(arguments, "", "--format");
	const char *mode = option(arguments, "-mig", "--multi-instance-gpu");
	const char *compute = option(arguments, "-c", "--compute-mode");
	const char *persistence = option(arguments, "-pm", "--persistence-mode");
	bool list = flag(arguments, "-L", "--list-gpus"), query = flag(arguments, "-q", "--query");
	bool reset = flag(arguments, "-r", "--gpu-reset");

	none_left(arguments);
	if (fields)
		command_fields(gpus, fields, format);
	else if (mode)
		command_mig_mode(gpus, mode);
	else if (compute)
		command_compute_mode(gpus, compute);
	else if (persistence)
		command_persistence(gpus, persistence);
	else if (list)
		command_list(gpus);
	else if (query)
		command_query(gpus);
	else if (reset)
		command_reset(gpus);
	else
		command_overview(gpus);
}

int main(int count, char **list)
{
	struct arguments arguments = {count - 1, list + 1};

	/* FAKE_NVML_FAIL applies to the program that started nvidia-smi. */
	unsetenv("FAKE_NVML_FAIL");
	unsetenv("FAKE_NVML_LOG");
	if (flag(&arguments, "-h", "--help")) {
		fputs(usage, stdout);
		return 0;
	}
	load();
	if (subcommand(&arguments, "mig"))
		command_mig(&arguments);
	else if (subcommand(&arguments, "compute-policy"))
		command_policy(&arguments);
	else
		gpu_command(&arguments);
	nv.nvmlShutdown();
	return 0;
}
