package fakegpu

import "github.com/tessera-gpu/tessera/api/gpu/catalog"

func modelTable(m catalog.Model) modelPart {
	part := modelPart{
		MemoryMIB: m.MemoryMiB, ReservedMIB: m.ReservedMiB, Brand: brands()[m.Brand], Architecture: architectures()[m.Architecture],
		ComputeMajor: uint32(m.ComputeMajor), ComputeMinor: uint32(m.ComputeMinor),
		Multiprocessors: uint32(m.Multiprocessors), Cores: uint32(m.Multiprocessors * m.CoresPerMultiprocessor),
		PCIDevice: uint32(m.PCIDevice), PCISubsystem: uint32(m.PCISubsystem),
		LinkMax: uint32(m.NVLinks), LinkVersion: uint32(m.NVLinkVersion),
		ComputeSlices: uint32(m.ComputeSlices), MaxMIG: uint32(m.MaxInstances), ProfileCount: uint32(len(m.Profiles)),
	}
	copy(part.Product[:], m.Product)
	if m.ComputeMajor < 9 {
		part.MIGNeedsReset = 1
	}
	for i, p := range m.Profiles {
		part.Profiles[i] = profileTable(p)
		last := p.Starts[len(p.Starts)-1] + p.Size
		part.MemorySlices = max(part.MemorySlices, uint32(last))
		part.Copy = max(part.Copy, uint32(p.Engines.Copy))
		part.Decoder = max(part.Decoder, uint32(p.Engines.Decoder))
		part.Encoder = max(part.Encoder, uint32(p.Engines.Encoder))
		part.JPEG = max(part.JPEG, uint32(p.Engines.JPEG))
		part.OFA = max(part.OFA, uint32(p.Engines.OFA))
	}
	return part
}

func profileTable(p catalog.Profile) profilePart {
	part := profilePart{
		MemoryMIB: p.MemoryMiB, Constant: uint32(p.Enum), ID: uint32(p.ID), Slices: uint32(p.ComputeSlices),
		MaxInstances: uint32(p.MaxInstances), Multiprocessors: uint32(p.Multiprocessors),
		Copy: uint32(p.Engines.Copy), Decoder: uint32(p.Engines.Decoder), Encoder: uint32(p.Engines.Encoder),
		JPEG: uint32(p.Engines.JPEG), OFA: uint32(p.Engines.OFA),
		Size: uint32(p.Size), StartCount: uint32(len(p.Starts)), ComputeCount: uint32(len(p.Compute)),
	}
	copy(part.Name[:], p.Name)
	if p.Graphics {
		part.Graphics = 1
	}
	copyNumbers(part.Starts[:], p.Starts)
	for i, c := range p.Compute {
		part.Compute[i] = computePart{
			Constant: uint32(c.Enum), ID: uint32(c.ID), Slices: uint32(c.Slices),
			Multiprocessors: uint32(c.Multiprocessors), StartCount: uint32(len(c.Starts)),
		}
		copyNumbers(part.Compute[i].Starts[:], c.Starts)
	}
	return part
}

func copyNumbers(to []uint32, from []int) {
	for i, n := range from {
		to[i] = uint32(n)
	}
}

// brands and architectures are NVML's constants by the catalogue's names.
func brands() map[string]uint32 {
	return map[string]uint32{"Tesla": 2, "NvidiaRTX": 13, "Nvidia": 14}
}

func architectures() map[string]uint32 {
	return map[string]uint32{"Volta": 5, "Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10}
}
