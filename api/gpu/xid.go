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
	{8, engine("the GPU stopped working on a program")},
	{11, program("a program sent commands that are not valid")},
	{13, program("a program did something that the GPU refused, such as reading past its memory")},
	{14, Judgement{Harmless, Wait, "an error that was injected for a test", "nothing"}},
	{25, program("a program sent commands that are not valid")},
	{31, program("a program used memory that is not its own")},
	{32, Judgement{Warning, Restart, "commands were damaged on their way to the GPU, as by a bad PCIe link", "restart the program; when it comes again, look for PCIe errors and check the seating"}},
	{37, Judgement{Harmless, Wait, "the GPU's firmware refused what a program asked for", "look at the program"}},
	{38, Judgement{Warning, Wait, "the GPU's firmware took too long", "nothing once; when it comes again, ask NVIDIA's support"}},
	{39, engine("a copy engine failed")},
	{40, engine("a copy engine failed")},
	{41, engine("a copy engine failed")},
	{43, program("a program was stopped after its own error; the GPU is well")},
	{44, Judgement{Warning, Wait, "an error while the GPU changed from one program to another", "nothing once; when it comes again, ask NVIDIA's support"}},
	{45, Judgement{Harmless, Restart, "a program's work was removed, as when it is ended", "nothing, unless another XID came before"}},
	{46, reset("the GPU stopped working")},
	{48, reset("a memory error that could not be corrected")},
	{54, Judgement{Critical, Reboot, "the GPU's own power cable is not connected", "shut the node down and check cables and seating"}},
	{58, Judgement{Critical, Reset, "the link to the GPU's memory is not stable (before Ampere)", again}},
	{60, engine("a video engine failed")},
	{61, Judgement{Critical, Reset, "a microcontroller of the GPU stopped at a breakpoint (before Ampere)", again}},
	{62, reset("a microcontroller of the GPU stopped")},
	{63, Judgement{Critical, Reset, "a row of memory is going to be remapped, or before Ampere a page to be retired", "let the GPU be drained and reset: the reset does it"}},
	{64, reset("a row of memory could not be remapped, or before Ampere a page not be retired")},
	{66, Judgement{Warning, Wait, "the driver did something that the GPU refused", driver}},
	{67, Judgement{Warning, Wait, "the driver did something that the GPU refused", driver}},
	{68, engine("a video decoder failed")},
	{69, program("a program used the GPU in a way that it does not have")},
	{70, engine("a copy engine failed")},
	{71, engine("a copy engine failed")},
	{72, engine("a copy engine failed")},
	{74, Judgement{Critical, Reset, "an error of an NVLink", linkHelp}},
	{75, engine("a copy engine failed")},
	{76, engine("a copy engine failed")},
	{77, engine("a copy engine failed")},
	{78, Judgement{Warning, Wait, "a virtual GPU could not be started", "make the versions of the driver in the guest and on the host fit each other"}},
	{79, Judgement{Fatal, Reboot, "the GPU has fallen off the bus", "reboot the node; check power and seating when it comes again"}},
	{80, program("damaged commands reached the GPU")},
	{82, engine("a JPEG engine failed")},
	{83, engine("a video decoder failed")},
	{84, engine("a video decoder failed")},
	{85, engine("a copy engine failed")},
	{86, engine("the optical flow engine failed")},
	{88, engine("a video decoder failed")},
	{89, engine("a video decoder failed")},
	{92, Judgement{Warning, Wait, "many memory errors, all corrected", "replace the GPU when it goes on"}},
	{93, Judgement{Warning, Wait, "the GPU's own store may not be written so often", "clear the limit with nvflash, or ask NVIDIA's support"}},
	{94, Judgement{Critical, Restart, "a memory error that could not be corrected and stayed within one program", "restart the program; let the GPU be reset when there is time"}},
	{95, reset("a memory error that could not be corrected and may have reached every program")},
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
	{106, Judgement{Harmless, Wait, "a test message of the management bus", "nothing"}},
	{107, Judgement{Harmless, Wait, "a test message of the management bus", "nothing"}},
	{108, Judgement{Harmless, Wait, "an address could not be translated at the other end of an NVLink", "look at the program"}},
	{109, Judgement{Critical, Reset, "the GPU could not change from one program to another in time", again}},
	{110, reset("the GPU's security processor found a fault, as after a change of the hardware")},
	{119, reset("the GPU's system processor (GSP) does not answer")},
	{120, reset("the GPU's system processor (GSP) failed")},
	{121, Judgement{Warning, Reset, "errors on the link to the processor (NVLink-C2C), all corrected", "let the GPU be reset when there is time: it trains the link again"}},
	{122, Judgement{Warning, Wait, "the GPU's flash could not be read", firmware}},
	{123, Judgement{Warning, Wait, "the GPU's flash could not be written", firmware}},
	{124, Judgement{Warning, Wait, "the GPU's flash could not be erased", firmware}},
	{125, Judgement{Warning, Wait, "the GPU's own store is damaged", firmware}},
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
	{136, Judgement{Critical, Reset, "an NVLink could not be trained", linkHelp}},
	{137, program("a program used memory of another GPU that is not its own")},
	{139, engine("the optical flow engine failed")},
	{140, reset("a memory error that could not be corrected, and the driver could not mark the place")},
	{141, Judgement{Warning, Wait, "an error on CUDA's fast path", "nothing once; when it comes again, ask NVIDIA's support"}},
	{142, engine("a video encoder failed")},
	{143, reset("the GPU could not be initialised")},
	{144, Judgement{Critical, Reset, "an error of an NVLink (SAW)", linkHelp}},
	{145, Judgement{Critical, Reset, "an error of an NVLink (RLW)", linkHelp}},
	{146, Judgement{Critical, Reset, "an error of an NVLink (TLW)", linkHelp}},
	{147, Judgement{Critical, Reset, "an error of an NVLink (TREX)", linkHelp}},
	{148, Judgement{Critical, Reset, "an error of an NVLink (NVLPW)", linkHelp}},
	{149, Judgement{Critical, Reset, "an NVLink went down (NETIR)", linkHelp}},
	{150, Judgement{Critical, Reset, "an error of an NVLink (MSE)", linkHelp}},
	{151, Judgement{Critical, Reboot, "the keys of confidential computing could not be changed", "restart the virtual machine, or reboot the node"}},
	{154, Judgement{Warning, Wait, "the driver wants another action for this GPU than before", "do what is said about the XID that came with it; the kernel's log names the action"}},
	{155, Judgement{Critical, Reset, "an NVLink was taken down by software", "let the GPU be drained and reset; find out who did it when nobody should have"}},
	{156, Judgement{Critical, Reset, "a damaged part of the GPU is going to be retired", "let the GPU be drained and reset: the reset does it"}},
	{157, Judgement{Warning, Replace, "a damaged part of the GPU could not be retired: there is no spare left", "replace the GPU when there is time; it works until the next error"}},
	{158, reset("the GPU did not answer the driver in time")},
	{159, Judgement{Critical, Reset, "an error on the link to the processor (CHI)", resetHelp}},
	{160, Judgement{Warning, Wait, "a channel of the memory was retired", "nothing; ask NVIDIA's support when it goes on"}},
	{161, Judgement{Warning, Wait, "a channel of the memory could not be retired", "ask NVIDIA's support"}},
	{162, Judgement{Harmless, Wait, "the smoothing of the power draw is on again", "nothing"}},
	{163, Judgement{Warning, Wait, "the smoothing of the power draw went off, as for heat", "check the cooling where the smoothing is needed"}},
	{164, Judgement{Warning, Wait, "the smoothing of the power draw will soon be worn out", "plan to replace the GPU where the smoothing is needed"}},
	{165, Judgement{Warning, Wait, "the smoothing of the power draw is worn out", "replace the GPU where the smoothing is needed"}},
	{166, Judgement{Warning, Wait, "traffic on an NVLink before it was encrypted (confidential computing)", driver}},
	{167, reset("the GPU did not answer over PCIe in time")},
	{168, Judgement{Warning, Reboot, "errors in protected memory: the GPU has less of it", "switch ECC on, so that rows can be remapped, and reboot the node"}},
	{169, reset("a microcontroller of the GPU stopped")},
	{170, Judgement{Warning, Wait, "an interrupt of an NVLink in confidential computing", driver}},
	{171, Judgement{Warning, Reset, "says of XID 48 that it was the GPU's memory (DRAM)", "do what is said about XID 48"}},
	{172, Judgement{Warning, Reset, "says of XID 48 that it was memory inside the chip (SRAM)", "do what is said about XID 48; replace the GPU when it comes again"}},
}

// Help texts that several rows share.
const (
	again    = "let the GPU be drained and reset; ask NVIDIA's support when it comes again"
	driver   = "update the driver; ask NVIDIA's support when it comes again"
	firmware = "update the GPU's firmware; ask NVIDIA's support when it comes again"
)

// program is the judgement of an error that the program itself caused.
func program(meaning string) Judgement {
	return Judgement{Harmless, Restart, meaning, "look at the program"}
}

// engine is the judgement of an error that ends one program and can be caused by the hardware.
func engine(meaning string) Judgement {
	return Judgement{Warning, Restart, meaning, "restart the program; let the GPU be reset when it comes again"}
}

// reset is the judgement of an error that only a reset clears and that ends all programs on the GPU.
func reset(meaning string) Judgement {
	return Judgement{Fatal, Reset, meaning, again}
}
