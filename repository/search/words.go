package search

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"firsttap/dispatch"
)

// A dispatch is found by its words. A word begins wherever letters and digits begin, and ends at a space: in "Gate 12-3" the words are
// "gate", "12-3" and "3". Punctuation within a word is one hyphen, whatever it was. A search has terms, which are made in the same way, and
// a term is the beginning of a word: so "12", "12-3", "12/3" and "3" are found there.
//
// Korean, Chinese and Japanese are written with and without spaces. So in free text a word also begins with each of their characters, and
// with digits after a letter, and a space beside one of their characters does not count: "강남구 테헤란로152" is found by "테헤란로 152" and by
// "남구테헤란".
const (
	// maxWordLength is how many characters of a word count.
	MaxWordLength = 40
	// maxWords is how many words of a dispatch count.
	MaxWords = 64
	// minIDLength is how much of an identifier is needed without its prefix: all identifiers of some days begin with the same characters.
	minIDLength = 8
)

// wordRule says where words begin and end.
type wordRule int

const (
	// RunsOnly makes words of runs of letters and digits, to a space.
	RunsOnly wordRule = iota
	// ToSpace makes words as in free text, to a space.
	ToSpace
	// AcrossSpace makes words as in free text, to a space that counts.
	AcrossSpace
)

// WordsOf appends the words of a normalized text that all does not contain, as long as there are no more than maxWords.
func WordsOf(all []string, text string, rule wordRule) []string {
	before := ' '
	for i, r := range text {
		begins := !InNoWord(r) && (InNoWord(before) || rule != RunsOnly && (IsFree(r) || unicode.IsDigit(r) && unicode.IsLetter(before)))
		if before = r; !begins {
			continue
		}
		if len(all) >= MaxWords {
			return all
		}
		if word := wordAt(text[i:], rule); !slices.Contains(all, word) {
			all = append(all, word)
		}
	}
	return all
}

// wordAt returns the word that a text begins with.
func wordAt(text string, rule wordRule) string {
	var b strings.Builder
	last, between, space := ' ', false, false
	n := 0
	for _, r := range text {
		if InNoWord(r) {
			if between, space = true, space || unicode.IsSpace(r); space && rule != AcrossSpace {
				break
			}
			continue
		}
		switch {
		case space && !IsFree(last) && !IsFree(r):
			return b.String()
		case between && !space:
			if n++; n > MaxWordLength {
				return b.String()
			}
			b.WriteByte('-')
		}
		if n++; n > MaxWordLength {
			break
		}
		b.WriteRune(r)
		last, between, space = r, false, false
	}
	return b.String()
}

// IsFree reports whether a character is of a script that is written with and without spaces.
func IsFree(r rune) bool {
	return isHangul(r) || r >= 0x1100 && unicode.In(r, unicode.Hangul, unicode.Han, unicode.Hiragana, unicode.Katakana)
}

// Normalized returns the text in one of the ways in which it may be written: in lower case, composed, and of usual width.
func Normalized(text string) string { return strings.ToLower(norm.NFKC.String(text)) }

// InNoWord reports whether a character is punctuation or space.
func InNoWord(r rune) bool {
	return !isHangul(r) && !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
}

// isHangul spares most characters here the search of Unicode's tables.
func isHangul(r rune) bool { return '가' <= r && r <= '힣' }

// WithoutPunctuation returns the letters, digits and marks of a text.
func WithoutPunctuation(text string) string {
	return strings.Join(strings.FieldsFunc(text, InNoWord), "")
}

// joined makes a word of runs of letters and digits.
func joined(runs []string) string {
	return Shortened(strings.Join(runs[:min(len(runs), MaxWordLength)], "-"))
}

// Shortened returns as much of a word as counts.
func Shortened(word string) string {
	n := 0
	for i := range word {
		if n == MaxWordLength {
			return word[:i]
		}
		n++
	}
	return word
}

// Term is what a search looks for: the beginning of a word, of an identifier unless ID is "", or of one of the words that stand for it
// otherwise. A text that goes on after a space may have it where one of the words in Ends is whole: the index has words to a space only.
type Term struct {
	Word string
	ID   string
	Also []string
	Ends []string
}

// foundIn reports whether a row has the term.
func (t *Term) foundIn(id string, words []string) bool {
	return t.ID != "" && strings.HasPrefix(id, t.ID) || slices.ContainsFunc(words, func(word string) bool {
		return strings.HasPrefix(word, t.Word) || slices.ContainsFunc(t.Also, func(begin string) bool { return strings.HasPrefix(word, begin) })
	})
}

// Terms returns the terms of a text without those that others imply, the longest first. It returns none if no row can have them all. The
// prefix is that of the rows' identifiers.
func Terms(text, prefix string) (terms []Term) {
	var all []string
	for chunk := range strings.FieldsSeq(Normalized(text)) {
		if runs := strings.FieldsFunc(chunk, InNoWord); len(runs) > 0 {
			all = append(all, joined(runs))
		}
	}
	slices.Sort(all)
	for i, word := range all {
		if i+1 < len(all) && strings.HasPrefix(all[i+1], word) {
			continue
		}
		terms = append(terms, Term{Word: word, ID: idPrefix(word, prefix)})
	}
	// The longest are mostly the rarest, and a search does not count all.
	slices.SortStableFunc(terms, func(a, b Term) int { return utf8.RuneCountInString(b.Word) - utf8.RuneCountInString(a.Word) })
	if len(
		terms,
	) > MaxWords+2 { // none of them is the beginning of another: each needs a word of its own, but for both forms of the identifier
		return nil
	}
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

// HaveAll reports whether the row of such an identifier and such words has all the terms.
func HaveAll(terms []Term, id string, words []string) bool {
	return !slices.ContainsFunc(terms, func(t Term) bool { return !t.foundIn(id, words) })
}
