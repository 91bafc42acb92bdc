package output

// Result is the output of a verb in all formats.
type Result struct {
	// Value is encoded for the formats json, yaml and jsonpath.
	Value any
	// Rows are the items of a list for the formats name and custom-columns, and for changes. Nil: Value is the one item.
	Rows []Row
	// Draw writes the text for people. A list has DrawRows instead.
	Draw func(*Screen)
	// DrawRows writes the text for people about the rows with those numbers for which shown is true.
	DrawRows func(s *Screen, shown func(number int) bool)
	// Empty is the message to people about a list without rows, which is written instead of a text.
	Empty string
	// Missing is the error about arguments that name no item; nil without.
	Missing error
	// Problems are sentences about objects that could not be listed or are inconsistent. With DrawsProblems, they are part of the text.
	Problems      []string
	DrawsProblems bool
}

// Row is an item of a list.
type Row struct {
	// Name identifies the item as an argument of the verb, or of kubectl.
	Name string
	// Title names the item in sentences, such as "Claim demo/train". It is unique in the list.
	Title string
	Value any
}

// isList reports whether the result has items.
func (r Result) isList() bool { return r.Rows != nil || r.DrawRows != nil }

// items returns the rows; for a result that is no list, one without a name.
func (r Result) items() []Row {
	if !r.isList() {
		return []Row{{Value: r.Value}}
	}
	return r.Rows
}

// draw writes the text for people.
func (r Result) draw(s *Screen) {
	if r.DrawRows == nil {
		r.Draw(s)
		return
	}
	r.DrawRows(s, func(int) bool { return true })
	if r.DrawsProblems {
		s.Problems(r.Problems)
	}
}

// Select returns the items with those numbers for which shown is true.
func Select[T any](items []T, shown func(number int) bool) []T {
	var selected []T
	for i, item := range items {
		if shown(i) {
			selected = append(selected, item)
		}
	}
	return selected
}
