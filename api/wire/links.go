package wire

import (
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// linkLetters has a character for each connection, in the order of gpu.Link: ? unknown, s SYS, n NODE, h PHB, x PXB, p PIX, -
// the GPU itself, then 1 to 9 and A to I for 1 to 18 NVLinks. The space is a placeholder for gpu.LinkNVLink, which is not a
// connection.
const linkLetters = "?snhxp- 123456789ABCDEFGHI"

// EncodeLinks returns the attribute Links of the GPU: one character for each GPU of the node, by index. It is empty if the
// links are unknown, and truncated to the maximum length of an attribute. Example: "-99s" is GPU 0 of four, with nine NVLinks
// to GPUs 1 and 2, and GPU 3 on another NUMA node.
func EncodeLinks(g gpu.GPU, gpus int) string {
	if len(g.Links) == 0 {
		return ""
	}
	var letters strings.Builder
	for i := range gpus {
		letters.WriteByte(linkLetter(g.Link(i)))
	}
	return cut(letters.String())
}

func linkLetter(link gpu.Link) byte {
	if link < 0 || int(link) >= len(linkLetters) || link == gpu.LinkNVLink {
		link = gpu.LinkUnknown
	}
	return linkLetters[link]
}

// DecodeLinks is the inverse of EncodeLinks. An error names the first invalid character.
func DecodeLinks(letters string) ([]gpu.Link, error) {
	links := make([]gpu.Link, len(letters))
	for i := range letters {
		link := strings.IndexByte(linkLetters, letters[i])
		if link < 0 || letters[i] == ' ' {
			return nil, fmt.Errorf("links %q: %q at %d is none of %s", letters, letters[i], i, linkLetters)
		}
		links[i] = gpu.Link(link)
	}
	return links, nil
}
