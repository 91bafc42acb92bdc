// Package gpunode joins the agent with the GPUNode of its node: what the installer wants is obeyed, what the agent knows is told.
//
// # Out of service
//
// While spec.maintenance is set, claims that are not ready are refused. The word that counts for every agent of the node is a file
// beside the records (Gate), so that it outlives restarts and an API server that is away, and two agents that overlap never
// disagree. Only the agent that leads writes it, as it follows the GPUNode (Keeper).
//
// The maintenance is acknowledged when the file says so and every call that read it before has ended, in whatever agent: calls hold
// a shared lock while they prepare, and the exclusive one can be had only between them. From then on nothing is prepared but the
// installer's validations, and those only in the step of validating; so an acknowledgement beside a count of zero is a promise.
//
// # Remedies
//
// An entry of spec.remedies holds one GPU, with those that are reset along with it, in the same file and by the same promise, for claims
// of these GPUs alone. When the order is to reset, nothing is prepared on them and nobody else has their locks, they are reset in the
// background, once for each ID whatever becomes of the agent meanwhile: the outcome is kept beside the file until the entry is gone.
package gpunode
