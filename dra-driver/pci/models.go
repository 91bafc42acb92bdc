package pci

// model has the data of a GPU that NVML would report, by its PCI device ID.
type model struct {
	product, architecture string
	mebibytes             uint64
}

// models is the table of models by PCI device ID. Source: pci.ids; memory in MiB as NVML reports it.
var models = map[string]model{
	"1db1": {"Tesla V100-SXM2-16GB", "Volta", 16384},
	"1eb8": {"Tesla T4", "Turing", 15360},
	"20b0": {"NVIDIA A100-SXM4-40GB", "Ampere", 40960},
	"20b2": {"NVIDIA A100-SXM4-80GB", "Ampere", 81920},
	"20b7": {"NVIDIA A30", "Ampere", 24576},
	"26b9": {"NVIDIA L40S", "Ada Lovelace", 46068},
	"2330": {"NVIDIA H100 80GB HBM3", "Hopper", 81559},
	"2335": {"NVIDIA H200", "Hopper", 143771},
	"2901": {"NVIDIA B200", "Blackwell", 183359},
	"2941": {"NVIDIA GB200", "Blackwell", 189471},
	"2bb5": {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "Blackwell", 97887},
	"3182": {"NVIDIA B300 SXM6 AC", "Blackwell", 275040},
}

// modelOf returns the model of a PCI device ID. A model that the table lacks has only a product name; the driver in the
// virtual machine does not need the data.
func modelOf(device string) model {
	if known, ok := models[device]; ok {
		return known
	}
	return model{product: "NVIDIA GPU " + device}
}
