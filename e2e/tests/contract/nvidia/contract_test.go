package nvidia

import "testing"

// TestContract runs every case with every image that it is for.
func TestContract(t *testing.T) {
	for _, v := range variants() {
		for _, c := range cases() {
			if c.where != nil && !c.where(v) {
				continue
			}
			t.Run(v.name+"/"+c.name, func(t *testing.T) {
				casesRun.Add(1)
				if err := c.run(newScene(t, v, c.files)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
