package search

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"firsttap/dispatch"
)

// A row is found by its words. A word begins wherever letters and digits begin, and ends at a space: in "Gate 12-3" the words are "gate",
// "12-3" and "3". Punctuation within a word is one hyphen, whatever it was. A search has terms, which are made in the same way, and a term
// is the beginning of a word: so "12", "12-3", "12/3" and "3" are found there.
//
// Korean, Chinese and Japanese are written with and without spaces. So a space beside one of their characters does not end a word, and in
// free text a word also begins with each of their characters, and with digits after a letter: "강남구 테헤란로152" is found by "테헤란로 152"
// and by "남구테헤란".
const (
	// MaxWordLength is how many characters of a word count.
	MaxWordLength = 40
	// MaxWords is how many words of a row count.
	MaxWords = 64
	// minIDLength is how much of an identifier is needed without its prefix: all identifiers of some days begin with the same characters.
	minIDLength = 8
)

// WordsOf returns the words of a row's names and of its free text. If they are too many, those that begin within a run of letters and
// digits are left out first.
func WordsOf(names []string, free ...string) (words []string) {
	var inner []string
	for i, text := range slices.Concat(names, free) {
		runs, within := split(Normalized(text))
		words = addNew(words, runs)
		if i >= len(names) {
			inner = append(inner, within...)
		}
	}
	return addNew(words, inner)
}

// addNew appends the words that are new, as long as there are no more than MaxWords.
func addNew(words, more []string) []string {
	for _, word := range more {
		if len(words) < MaxWords && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
}

// split returns the words of a normalized text that begin with a run of letters and digits, and those that begin within one if it is free
// text.
func split(text string) (runs, within []string) {
	var b strings.Builder // the words, each to the next space
	var runsAt, withinAt []int
	last, between, space := ' ', true, true
	for _, r := range text {
		if inNoWord(r) {
			between, space = true, space || unicode.IsSpace(r)
			continue
		}
		free := isFree(r)
		switch {
		case between && !space:
			b.WriteByte('-')
		case between && !free && !isFree(last):
			b.WriteByte(' ')
		}
		if between {
			runsAt = append(runsAt, b.Len())
		} else if free || unicode.IsDigit(r) && unicode.IsLetter(last) {
			withinAt = append(withinAt, b.Len())
		}
		b.WriteRune(r)
		last, between, space = r, false, false
	}
	return wordsAt(b.String(), runsAt), wordsAt(b.String(), withinAt)
}

// wordsAt returns the words that begin at these places, as much of each as counts.
func wordsAt(text string, places []int) []string {
	words := make([]string, len(places))
	for i, place := range places {
		// No character has more bytes: what is left out does not count.
		word, _, _ := strings.Cut(text[place:min(len(text), place+utf8.UTFMax*MaxWordLength)], " ")
		n := 0
		for end := range word {
			if n++; n > MaxWordLength {
				word = word[:end]
				break
			}
		}
		words[i] = word
	}
	return words
}

// isFree reports whether a character is of a script that is written with and without spaces.
func isFree(r rune) bool {
	return r >= 0x1100 && unicode.In(r, unicode.Hangul, unicode.Han, unicode.Hiragana, unicode.Katakana)
}

// Normalized returns the text in one of the ways in which it may be written: in lower case, composed, and of usual width.
func Normalized(text string) string { return strings.ToLower(norm.NFKC.String(text)) }

// inNoWord reports whether a character is punctuation or space.
func inNoWord(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
}

// WithoutPunctuation returns the letters, digits and marks of a normalized text.
func WithoutPunctuation(text string) string {
	return strings.Join(strings.FieldsFunc(text, inNoWord), "")
}

// Term is what a search looks for. A row has it if one of its words begins with one of Begins, or its identifier with ID unless that is "".
type Term struct {
	Begins []string
	ID     string
}

// Terms returns the terms of a text without those that others imply, the longest first, which are mostly the rarest. It returns none if no
// row can have them all. The prefix is that of the rows' identifiers.
func Terms(text, prefix string) (terms []Term) {
	var all []string
	for chunk := range strings.FieldsSeq(Normalized(text)) {
		if runs, _ := split(chunk); len(runs) > 0 {
			all = append(all, runs[0])
		}
	}
	slices.Sort(all)
	for i, word := range all {
		if i+1 == len(all) || !strings.HasPrefix(all[i+1], word) {
			terms = append(terms, Term{Begins: []string{word}, ID: idPrefix(word, prefix)})
		}
	}
	// No term is the beginning of another. So each needs a word of its own, but for the two forms of an identifier.
	if len(terms) > MaxWords+2 {
		return nil
	}
	slices.SortStableFunc(terms, func(a, b Term) int { return len(b.Begins[0]) - len(a.Begins[0]) })
	return terms
}

// idPrefix returns the beginning of an identifier with the prefix that the word is, "" if it is none.
func idPrefix(word, prefix string) string {
	rest, named := strings.CutPrefix(word, strings.TrimSuffix(prefix, "_")+"-")
	if rest == "" || !named && len(rest) < minIDLength || !dispatch.LooksLikeID(prefix+rest) {
		return ""
	}
	return prefix + rest
}

// mayHaveAll reports false only if a row of that text, whatever its identifier, lacks one of the terms. It costs a part of HaveAll.
func mayHaveAll(terms []Term, text string) bool {
	letters := WithoutPunctuation(Normalized(text))
	return !slices.ContainsFunc(terms, func(t Term) bool {
		return t.ID == "" && !slices.ContainsFunc(t.Begins, func(begin string) bool {
			return strings.Contains(letters, strings.ReplaceAll(begin, "-", ""))
		})
	})
}

// HaveAll reports whether the row of such an identifier and such words has all the terms.
func HaveAll(terms []Term, id string, words []string) bool {
	return !slices.ContainsFunc(terms, func(t Term) bool {
		return (t.ID == "" || !strings.HasPrefix(id, t.ID)) && !slices.ContainsFunc(words, func(word string) bool {
			return slices.ContainsFunc(t.Begins, func(begin string) bool { return strings.HasPrefix(word, begin) })
		})
	})
}
