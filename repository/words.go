package repository

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
const (
	// maxWordLength is how many characters of a word count.
	maxWordLength = 40
	// maxWords is how many words of a dispatch count.
	maxWords = 64
	// minIDLength is how much of an identifier is needed without its prefix: all identifiers of some days begin with the same characters.
	minIDLength = 8
)

// words returns the words by which the dispatch is found: of the external id, also without its punctuation, the address and the note.
func (row *dispatchRow) words() []string {
	externalID := normalized(stringOrEmpty(row.ExternalID))
	all := wordsOf(nil, externalID)
	if whole := shortened(strings.Join(strings.FieldsFunc(externalID, inNoWord), "")); whole != "" && len(all) < maxWords && !slices.Contains(all, whole) {
		all = append(all, whole)
	}
	return wordsOf(wordsOf(all, normalized(row.SiteAddress)), normalized(row.Note))
}

// textColumns are what words reads.
const textColumns = "external_id, site_address, note"

func (row *dispatchRow) sameText(other *dispatchRow) bool {
	return stringOrEmpty(row.ExternalID) == stringOrEmpty(other.ExternalID) && row.SiteAddress == other.SiteAddress && row.Note == other.Note
}

// wordsOf appends the words of a normalized text that all does not contain, as long as there are no more than maxWords.
func wordsOf(all []string, text string) []string {
	for chunk := range strings.FieldsSeq(text) {
		runs := strings.FieldsFunc(chunk, inNoWord)
		for i := range runs {
			if len(all) >= maxWords {
				return all
			}
			if word := joined(runs[i:]); !slices.Contains(all, word) {
				all = append(all, word)
			}
		}
	}
	return all
}

// normalized returns the text in one of the ways in which it may be written: in lower case, composed, and of usual width.
func normalized(text string) string { return strings.ToLower(norm.NFKC.String(text)) }

func inNoWord(r rune) bool { return !unicode.In(r, unicode.L, unicode.N, unicode.M) }

// joined makes a word of runs of letters and digits.
func joined(runs []string) string {
	return shortened(strings.Join(runs[:min(len(runs), maxWordLength)], "-"))
}

func shortened(word string) string {
	n := 0
	for i := range word {
		if n == maxWordLength {
			return word[:i]
		}
		n++
	}
	return word
}

// searchTerm is what a search looks for: the beginning of a word, of an identifier unless ID is "", or of one of the words that stand for it
// otherwise.
type searchTerm struct {
	Word string
	ID   string
	Also []string
}

// foundIn reports whether a row has the term.
func (t *searchTerm) foundIn(id string, words []string) bool {
	return t.ID != "" && strings.HasPrefix(id, t.ID) || slices.ContainsFunc(words, func(word string) bool {
		return strings.HasPrefix(word, t.Word) || slices.ContainsFunc(t.Also, func(begin string) bool { return strings.HasPrefix(word, begin) })
	})
}

// searchTerms returns the terms of a text without those that others imply, the longest first. It returns none if no row can have them all. The
// prefix is that of the rows' identifiers.
func searchTerms(text, prefix string) (terms []searchTerm) {
	var all []string
	for chunk := range strings.FieldsSeq(normalized(text)) {
		if runs := strings.FieldsFunc(chunk, inNoWord); len(runs) > 0 {
			all = append(all, joined(runs))
		}
	}
	slices.Sort(all)
	for i, word := range all {
		if i+1 < len(all) && strings.HasPrefix(all[i+1], word) {
			continue
		}
		terms = append(terms, searchTerm{Word: word, ID: idPrefix(word, prefix)})
	}
	// The longest are mostly the rarest, and a search does not count all.
	slices.SortStableFunc(terms, func(a, b searchTerm) int { return utf8.RuneCountInString(b.Word) - utf8.RuneCountInString(a.Word) })
	if len(terms) > maxWords+2 { // none of them is the beginning of another: each needs a word of its own, but for both forms of the identifier
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

// haveAll reports whether the row of such an identifier and such words has all the terms.
func haveAll(terms []searchTerm, id string, words []string) bool {
	return !slices.ContainsFunc(terms, func(t searchTerm) bool { return !t.foundIn(id, words) })
}
