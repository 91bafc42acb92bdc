package hook

import (
	"cmp"
	"strings"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

// candidate is a file that the linker could use for the library name key.
type candidate struct {
	key  string
	name string
	abi  ldso.ABI
	link bool
}

// candidateOf returns the candidate of a file or a link. A link whose name is neither the library's soname nor, as the
// compilers' link, the soname without version counts as a file.
func candidateOf(name string, library ldso.Library, link bool) candidate {
	soname := cmp.Or(library.Name, name)
	if link && (name == soname || strings.HasSuffix(name, ".so") && strings.HasPrefix(soname, name)) {
		return candidate{key: name, name: name, abi: library.ABI, link: true}
	}
	return candidate{key: soname, name: name, abi: library.ABI}
}

// prefer keeps the candidate for a key that ldconfig would take: a file rather than a link, then the higher version.
func prefer(found map[string]candidate, c candidate) map[string]candidate {
	other, ok := found[c.key]
	if !ok || other.link && !c.link || other.link == c.link && ldso.CompareNames(c.name, other.name) > 0 {
		found[c.key] = c
	}
	return found
}
