package gpu

// xids has the judgements of XIDs, in ascending order of number (Rules.judgeXID searches it by bisection).
//
// Meanings and actions are from NVIDIA's XID catalog, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
// (columns description, immediate action and trigger conditions), and for GPUs before Ampere from the document that it refers
// to. Numbers that both list as unused, and those of displays, are left out.
//
// The catalog has no severities. Tessera derives them from its actions:
//   - Fatal: a reset or reboot, and the work on the GPU is lost.
//   - Critical: a reset or reboot, but the work can continue, or only one program ends.
//   - Warning: restart of a program although the hardware can be the cause, or a report to NVIDIA's support.
//   - Harmless: the catalog attributes the error to the program.
//
// Where the action depends on bits of the kernel's message, which NVML does not report with the number, the more severe one is
// used.
var xids = []XID{
	{8, engine("the GPU stopped processing the work of a program")},
	{11, program("a program sent invalid commands")},
	{13, program("a program caused an exception of the GPU, such as an out-of-range address")},
	{14, Judgement{Harmless, Wait, "an error that was injected for a test", "no action"}},
	{25, program("a program sent invalid commands")},
	{31, program("a program accessed memory that it had not mapped (page fault)")},
	{32, Judgement{Warning, Restart, "the commands that reached the GPU were corrupted, for example by a faulty PCIe link", "restart the program; if it recurs, check for PCIe errors and reseat the GPU"}},
	{37, Judgement{Harmless, Wait, "the GPU's firmware rejected a request of a program", "check the program"}},
	{38, Judgement{Warning, Wait, "timeout of the GPU's firmware", supportIfRecurs}},
	{39, engine("a copy engine failed")},
	{40, engine("a copy engine failed")},
	{41, engine("a copy engine failed")},
	{43, program("a program was stopped after its own error; the GPU is healthy")},
	{44, Judgement{Warning, Wait, "an error during a context switch", supportIfRecurs}},
	{45, Judgement{Harmless, Restart, "the channels of a program were removed, for example because it ended", "no action, unless another XID precedes it"}},
	{46, reset("the GPU stopped processing")},
	{48, reset("an uncorrectable memory error")},
	{54, Judgement{Critical, Reboot, "the auxiliary power cable of the GPU is not connected", "shut the node down; check the cables and reseat the GPU"}},
	{58, Judgement{Critical, Reset, "the link to the GPU's memory is unstable (before Ampere)", resetAndSupport}},
	{60, engine("a video engine failed")},
	{61, Judgement{Critical, Reset, "a microcontroller of the GPU stopped at a breakpoint (before Ampere)", resetAndSupport}},
	{62, reset("a microcontroller of the GPU stopped")},
	{63, Judgement{Critical, Reset, "a row remapping is pending (before Ampere: a page retirement)", "drain and reset the GPU: the reset completes it"}},
	{64, reset("a row remapping failed (before Ampere: a page retirement)")},
	{66, Judgement{Warning, Wait, "an invalid access by the driver", updateDriver}},
	{67, Judgement{Warning, Wait, "an invalid access by the driver", updateDriver}},
	{68, engine("a video decoder failed")},
	{69, program("a program used a function that the GPU does not support")},
	{70, engine("a copy engine failed")},
	{71, engine("a copy engine failed")},
	{72, engine("a copy engine failed")},
	{74, Judgement{Critical, Reset, "an NVLink error", linkHelp}},
	{75, engine("a copy engine failed")},
	{76, engine("a copy engine failed")},
	{77, engine("a copy engine failed")},
	{78, Judgement{Warning, Wait, "a virtual GPU failed to start", "use compatible driver versions in the guest and on the host"}},
	{79, Judgement{Fatal, Reboot, "the GPU has fallen off the bus", "reboot the node; if it recurs, check the power supply and reseat the GPU"}},
	{80, program("corrupted data reached the GPU")},
	{82, engine("a JPEG engine failed")},
	{83, engine("a video decoder failed")},
	{84, engine("a video decoder failed")},
	{85, engine("a copy engine failed")},
	{86, engine("the optical flow engine failed")},
	{88, engine("a video decoder failed")},
	{89, engine("a video decoder failed")},
	{92, Judgement{Warning, Wait, "a high rate of corrected memory errors", "replace the GPU if the errors continue"}},
	{93, Judgement{Warning, Wait, "the InfoROM reached its limit of writes", "clear the limit with nvflash, or contact NVIDIA support"}},
	{94, Judgement{Critical, Restart, "a contained uncorrectable memory error that affects one program", "restart the program; reset the GPU at the next maintenance"}},
	{95, reset("an uncontained memory error that can affect all programs")},
	{96, engine("a video decoder failed")},
	{97, engine("a video decoder failed")},
	{98, engine("a video decoder failed")},
	{99, engine("a JPEG engine failed")},
	{100, engine("a JPEG engine failed")},
	{101, engine("a JPEG engine failed")},
	{102, engine("a JPEG engine failed")},
	{103, engine("a JPEG engine failed")},
	{104, engine("a JPEG engine failed")},
	{105, engine("a JPEG engine failed")},
	{106, Judgement{Harmless, Wait, "a test message of the management bus", "no action"}},
	{107, Judgement{Harmless, Wait, "a test message of the management bus", "no action"}},
	{108, Judgement{Harmless, Wait, "an address translation failed at the remote end of an NVLink", "check the program"}},
	{109, Judgement{Critical, Reset, "timeout of a context switch", resetAndSupport}},
	{110, reset("a fault of the GPU's security processor, for example after a change of the hardware")},
	{119, reset("the GPU System Processor (GSP) does not respond")},
	{120, reset("the GPU System Processor (GSP) failed")},
	{121, Judgement{Warning, Reset, "corrected errors on the link to the CPU (NVLink-C2C)", "reset the GPU at the next maintenance: the reset retrains the link"}},
	{122, Judgement{Warning, Wait, "a read of the GPU's flash failed", updateFirmware}},
	{123, Judgement{Warning, Wait, "a write to the GPU's flash failed", updateFirmware}},
	{124, Judgement{Warning, Wait, "an erase of the GPU's flash failed", updateFirmware}},
	{125, Judgement{Warning, Wait, "the InfoROM file system is corrupted", updateFirmware}},
	{126, engine("a copy engine failed")},
	{127, engine("a copy engine failed")},
	{128, engine("a copy engine failed")},
	{129, engine("a copy engine failed")},
	{130, engine("a copy engine failed")},
	{131, engine("a copy engine failed")},
	{132, engine("a copy engine failed")},
	{133, engine("a copy engine failed")},
	{134, engine("a copy engine failed")},
	{135, engine("a copy engine failed")},
	{136, Judgement{Critical, Reset, "the training of an NVLink failed", linkHelp}},
	{137, program("a program accessed memory of a peer GPU that it had not mapped")},
	{139, engine("the optical flow engine failed")},
	{140, reset("an uncorrectable memory error whose location the driver could not record")},
	{141, Judgement{Warning, Wait, "an error on CUDA's fast path", supportIfRecurs}},
	{142, engine("a video encoder failed")},
	{143, reset("the initialization of the GPU failed")},
	{144, Judgement{Critical, Reset, "an error of an NVLink (SAW)", linkHelp}},
	{145, Judgement{Critical, Reset, "an error of an NVLink (RLW)", linkHelp}},
	{146, Judgement{Critical, Reset, "an error of an NVLink (TLW)", linkHelp}},
	{147, Judgement{Critical, Reset, "an error of an NVLink (TREX)", linkHelp}},
	{148, Judgement{Critical, Reset, "an error of an NVLink (NVLPW)", linkHelp}},
	{149, Judgement{Critical, Reset, "an NVLink went down (NETIR)", linkHelp}},
	{150, Judgement{Critical, Reset, "an error of an NVLink (MSE)", linkHelp}},
	{151, Judgement{Critical, Reboot, "the key rotation of confidential computing failed", "restart the virtual machine, or reboot the node"}},
	{154, Judgement{Warning, Wait, "the recovery action of the GPU changed", "follow the entry of the accompanying XID; the kernel log names the action"}},
	{155, Judgement{Critical, Reset, "an NVLink was taken down by software", "drain and reset the GPU; if this was not intended, find the program that did it"}},
	{156, Judgement{Critical, Reset, "the retirement of a faulty part of the GPU is pending", "drain and reset the GPU: the reset completes it"}},
	{157, Judgement{Warning, Replace, "the retirement of a faulty part of the GPU failed: no spare is left", "replace the GPU at the next maintenance; it works until the next error"}},
	{158, reset("timeout of a request of the driver to the GPU")},
	{159, Judgement{Critical, Reset, "an error on the link to the CPU (CHI)", resetHelp}},
	{160, Judgement{Warning, Wait, "a memory channel was retired", "no action; contact NVIDIA support if it continues"}},
	{161, Judgement{Warning, Wait, "the retirement of a memory channel failed", "contact NVIDIA support"}},
	{162, Judgement{Harmless, Wait, "power smoothing was engaged again", "no action"}},
	{163, Judgement{Warning, Wait, "power smoothing was disengaged, for example because of heat", "check the cooling if power smoothing is required"}},
	{164, Judgement{Warning, Wait, "the power smoothing circuit is near the end of its lifetime", "plan to replace the GPU if power smoothing is required"}},
	{165, Judgement{Warning, Wait, "the power smoothing circuit is at the end of its lifetime", "replace the GPU if power smoothing is required"}},
	{166, Judgement{Warning, Wait, "traffic on an NVLink before it was encrypted (confidential computing)", updateDriver}},
	{167, reset("timeout of a PCIe request to the GPU")},
	{168, Judgement{Warning, Reboot, "errors in write-protected memory: the usable part is smaller", "enable ECC, so that rows can be remapped, and reboot the node"}},
	{169, reset("a microcontroller of the GPU stopped")},
	{170, Judgement{Warning, Wait, "an interrupt of an NVLink in confidential computing", updateDriver}},
	{171, Judgement{Warning, Reset, "location of XID 48: the GPU's memory (DRAM)", "see XID 48"}},
	{172, Judgement{Warning, Reset, "location of XID 48: memory inside the chip (SRAM)", "see XID 48; replace the GPU if it recurs"}},
}

// Help texts that several rows share.
const (
	resetAndSupport = resetHelp + "; contact NVIDIA support if it recurs"
	supportIfRecurs = "no action after a single occurrence; contact NVIDIA support if it recurs"
	updateDriver    = "update the driver; contact NVIDIA support if it recurs"
	updateFirmware  = "update the GPU's firmware; contact NVIDIA support if it recurs"
)

// program is the judgement of an error that the program itself caused.
func program(meaning string) Judgement {
	return Judgement{Harmless, Restart, meaning, "check the program"}
}

// engine is the judgement of an error that ends one program and can be caused by the hardware.
func engine(meaning string) Judgement {
	return Judgement{Warning, Restart, meaning, "restart the program; reset the GPU if it recurs"}
}

// reset is the judgement of an error that only a reset clears and that ends all programs on the GPU.
func reset(meaning string) Judgement {
	return Judgement{Fatal, Reset, meaning, resetAndSupport}
}
