package dialect

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"
)

// vocabulary finds the words of testdata/words.txt in texts.
type vocabulary struct {
	groups []string
	// words and prefixes have the group by the word; phrases start with the key.
	words, prefixes map[string]int
	phrases         map[string][]phrase
	// identifiers are not counted: they implement interfaces of other projects.
	identifiers map[string]bool
}

// phrase is a sequence of words; group is negative when it is allowed.
type phrase struct {
	words []string
	group int
}

const allowed = -1

func readVocabulary(file string) (*vocabulary, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	v := &vocabulary{words: map[string]int{}, prefixes: map[string]int{}, phrases: map[string][]phrase{}, identifiers: map[string]bool{}}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case len(fields) < 2:
			return nil, fmt.Errorf("read %s: group %s has no words", file, fields[0])
		case fields[0] == "allow" && fields[1] == "phrase":
			for _, word := range fields[2:] {
				v.add(word, allowed)
			}
		case fields[0] == "allow" && fields[1] == "identifier":
			for _, name := range fields[2:] {
				v.identifiers[name] = true
			}
		default:
			v.groups = append(v.groups, fields[0])
			for _, word := range fields[1:] {
				v.add(word, len(v.groups)-1)
			}
		}
	}
	return v, nil
}

func (v *vocabulary) add(word string, group int) {
	if prefix, ok := strings.CutSuffix(word, "*"); ok {
		v.prefixes[prefix] = group
	} else if first, _, ok := strings.Cut(word, "_"); ok {
		v.phrases[first] = append(v.phrases[first], phrase{strings.Split(word, "_"), group})
	} else {
		v.words[word] = group
	}
}

// find calls found with the group of every word of the vocabulary in the text, and with the offset of the word.
func (v *vocabulary) find(text string, found func(group, offset int)) {
	tokens := split(text)
	for i := 0; i < len(tokens); i++ {
		if p, ok := v.phraseAt(tokens[i:]); ok {
			if p.group != allowed {
				found(p.group, tokens[i].offset)
			}
			i += len(p.words) - 1
			continue
		}
		if group, ok := v.group(tokens[i].word); ok {
			found(group, tokens[i].offset)
		}
	}
}

func (v *vocabulary) phraseAt(tokens []textWord) (phrase, bool) {
	for _, p := range v.phrases[tokens[0].word] {
		if len(p.words) <= len(tokens) && slices.EqualFunc(p.words, tokens[:len(p.words)], func(w string, t textWord) bool { return w == t.word }) {
			return p, true
		}
	}
	return phrase{}, false
}

func (v *vocabulary) group(word string) (int, bool) {
	if group, ok := v.words[word]; ok {
		return group, true
	}
	for prefix, group := range v.prefixes {
		if strings.HasPrefix(word, prefix) {
			return group, true
		}
	}
	return 0, false
}

// textWord is a word in lower case.
type textWord struct {
	word   string
	offset int
}

// split returns the words of a text. Words in camel case are several: tellGPUNode is tell, gpu, node.
func split(text string) []textWord {
	var tokens []textWord
	runes := []rune(text)
	offset, begin := 0, -1
	start := 0
	flush := func(end, endOffset int) {
		if begin >= 0 {
			tokens = append(tokens, textWord{strings.ToLower(string(runes[begin:end])), start})
			begin = -1
		}
		start = endOffset
	}
	for i, r := range runes {
		letter := unicode.IsLetter(r)
		upper := unicode.IsUpper(r)
		switch {
		case !letter:
			flush(i, offset)
		case begin >= 0 && upper && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			flush(i, offset)
		}
		if letter && begin < 0 {
			begin, start = i, offset
		}
		offset += len(string(r))
	}
	flush(len(runes), offset)
	return tokens
}
