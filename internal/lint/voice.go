package lint

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Bounds of a line, in columns, and of a sentence.
const (
	maxCodeWidth  = 120
	maxProseWidth = 100
	tabWidth      = 4
	maxWords      = 25
	longString    = 70 // a line may be wider if it holds a string of this length: strings are not split
)

// CheckVoice checks the comments of the Go files below root, and the Markdown pages, for the rules
// of style that a program can see. These are the width of lines, the length of sentences, and
// comments that hide their noun behind "what" or "who". Generated files are left out.
func CheckVoice(root fs.FS) ([]Finding, error) {
	var found []Finding
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && leftOut(name, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".md"):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if strings.HasSuffix(name, ".md") {
			found = append(found, pageVoice(name, string(text))...)
		} else if !generated.Match(text) {
			found = append(found, sourceVoice(name, string(text))...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("check the voice: %w", err)
	}
	return found, nil
}

func leftOut(name, base string) bool {
	return base == "testdata" || base == "node_modules" || name != "." && strings.HasPrefix(base, ".")
}

// output is the line of a comment from which on an Example says what it prints.
var output = regexp.MustCompile(`(?i)^ (unordered )?output:`)

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// pageVoice checks a Markdown page. Rows of tables and lines with a long address cannot be broken,
// so they may be wider.
func pageVoice(name, text string) (found []Finding) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		isRow := strings.HasPrefix(line, "|")
		if w := columns(line); w > maxProseWidth && !isRow && longestWord(line) < maxProseWidth/2 {
			found = append(found, wide(name, number, w, maxProseWidth))
		}
	}
	return found
}

func wide(name string, number, width, most int) Finding {
	return finding(
		fmt.Sprintf("%s:%d", path.Clean(name), number), "is %d columns wide; at most %d are possible", width, most,
	)
}

// sourceVoice checks a Go file, line by line. Lines of a raw string that look like comments are
// checked as comments.
func sourceVoice(name, text string) (found []Finding) {
	var sentence []string
	begin, number, isOutput := 0, 0, false
	flush := func() {
		if len(sentence) > 0 {
			found = append(found, proseVoice(name, begin, strings.Join(sentence, " "))...)
		}
		sentence = nil
	}
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		comment, isComment := strings.CutPrefix(strings.TrimSpace(line), "//")
		if isOutput = isComment && (isOutput || output.MatchString(comment)); isOutput {
			continue
		}
		most := maxCodeWidth
		if isComment {
			most = maxProseWidth
		}
		if w := columns(line); w > most && !cannotBreak(line) {
			found = append(found, wide(name, number, w, most))
		}
		prose, isProse := strings.CutPrefix(comment, " ")
		if !isComment || !isProse || strings.HasPrefix(prose, " ") || strings.TrimSpace(prose) == "" {
			flush()
			continue
		}
		if len(sentence) == 0 {
			begin = number
		}
		sentence = append(sentence, strings.TrimSpace(prose))
	}
	flush()
	return found
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + strings.Count(line, "\t")*(tabWidth-1)
}

var (
	literals = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`?")
	tag      = regexp.MustCompile("`[a-z]+:\"")
)

// cannotBreak reports whether a line is long because of one string, or because of a field's tag.
func cannotBreak(line string) bool {
	if tag.MatchString(line) || strings.HasPrefix(line, "//go:") {
		return true
	}
	for _, s := range literals.FindAllString(line, -1) {
		if utf8.RuneCountInString(s) >= longString {
			return true
		}
	}
	return longestWord(line) >= maxProseWidth/2
}

func longestWord(line string) int {
	longest := 0
	for word := range strings.FieldsSeq(line) {
		longest = max(longest, utf8.RuneCountInString(word))
	}
	return longest
}

var (
	ends  = regexp.MustCompile(`[.!?:;]["')\]]*\s+`)
	leads = regexp.MustCompile(`^(What|Whatever|Who|Whoever|Whom|Whose)\b`)
	leans = regexp.MustCompile(
		`\b(is|are|was|were|and|but|for|of|by|with|to|from|on|that|in) (what|who|whatever|whoever)\b`,
	)
)

// proseVoice checks the sentences of a comment that begins at a line.
func proseVoice(name string, number int, text string) (found []Finding) {
	where := fmt.Sprintf("%s:%d", path.Clean(name), number)
	for _, s := range ends.Split(text, -1) {
		switch {
		case leads.MatchString(s) || leans.MatchString(s):
			found = append(
				found,
				finding(
					where, "name the thing: a noun says more than %q in %q", leads.FindString(s)+leans.FindString(s), s,
				),
			)
		case len(strings.Fields(s)) > maxWords:
			found = append(
				found,
				finding(
					where, "a sentence has %d words; at most %d are easy to read: %q", len(strings.Fields(s)), maxWords,
					s,
				),
			)
		}
	}
	return found
}
