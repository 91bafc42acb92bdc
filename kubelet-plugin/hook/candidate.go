package hook

import (
	"cmp"
	"strings"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

// candidate is a file that could serve the programs that ask for key.
type candidate struct {
	key  string
	name string
	abi  ldso.ABI
	link bool
}

// candidateOf returns what a file or a link serves. A link whose name is neither the library's own
// nor, without the version, the one for compilers counts as a file.
func candidateOf(name string, library ldso.Library, link bool) candidate {
	soname := cmp.Or(library.Name, name)
	if link && (name == soname || strings.HasSuffix(name, ".so") && strings.HasPrefix(soname, name)) {
		return candidate{key: name, name: name, abi: library.ABI, link: true}
	}
	return candidate{key: soname, name: name, abi: library.ABI}
}

// prefer keeps of two candidates for one key the one that ldconfig takes: a file rather than a link,
// then the higher version.
func prefer(found map[string]candidate, c candidate) map[string]candidate {
	other, ok := found[c.key]
	if !ok || other.link && !c.link || other.link == c.link && ldso.CompareNames(c.name, other.name) > 0 {
		found[c.key] = c
	}
	return found
}
