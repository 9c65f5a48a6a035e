package main

import (
	"bytes"
	"fmt"
	"strings"
)

// markdownIntro stands before the calls.
const markdownIntro = `# Calls

<!-- Made by make generate from the comments of proto/. Change those. -->

Every call that a gateway takes from users. In JSON a call is a POST to the path that stands with
it, with the request as its body. Numbers of 64 bits are texts in JSON. [The API](api.md) says how
to call, and what holds for all calls. A gateway serves this reference at ` + "`/docs`" + `.

`

// markdown returns docs/reference/calls.md.
func (r *reference) markdown() []byte {
	var b bytes.Buffer
	b.WriteString(markdownIntro)
	b.WriteString("| service | calls |\n|---|---|\n")
	for _, s := range r.Services {
		calls := make([]string, len(s.Calls))
		for i, c := range s.Calls {
			calls[i] = fmt.Sprintf("[%s](#%s)", c.Name, strings.ToLower(c.Name))
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", s.Name, strings.ToLower(s.Name), strings.Join(calls, ", "))
	}
	for _, s := range r.Services {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Name)
		writeText(&b, s.Comment)
		for _, c := range s.Calls {
			c.write(&b)
		}
	}
	b.WriteString("\n## Messages\n")
	for _, m := range r.Messages {
		fmt.Fprintf(&b, "\n### %s\n\n", m.Name)
		writeText(&b, m.Comment)
		writeFields(&b, "Fields", m.Fields)
	}
	b.WriteString("\n## Enumerations\n")
	for _, e := range r.Enums {
		fmt.Fprintf(&b, "\n### %s\n\n", e.Name)
		writeText(&b, e.Comment)
		b.WriteString("| word | number | |\n|---|---|---|\n")
		for _, v := range e.Values {
			fmt.Fprintf(&b, "| `%s` | %d | %s |\n", v.Name, v.Number, cellText(v.Comment))
		}
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

func (c *call) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "### %s\n\n", c.Name)
	writeText(b, c.Comment)
	answers := "one answer"
	if c.Streams {
		answers = "a stream of answers"
	}
	fmt.Fprintf(b, "`POST %s`, with %s.\n\n", c.Path, answers)
	writeFields(b, "Request", c.Request.Fields)
	writeFields(b, "Answer", c.Answer.Fields)
}

func writeFields(b *bytes.Buffer, title string, fields []field) {
	if len(fields) == 0 {
		fmt.Fprintf(b, "%s: no fields.\n\n", title)
		return
	}
	fmt.Fprintf(b, "| %s | type | |\n|---|---|---|\n", strings.ToLower(title))
	for _, f := range fields {
		name := f.Type
		if f.Link {
			name = fmt.Sprintf("[%s](#%s)", f.Type, strings.ToLower(f.Type))
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.Name, strings.TrimSpace(f.Before+" "+name), cellText(f.Comment))
	}
	b.WriteString("\n")
}

// cellText keeps a text from ending its cell.
func cellText(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

// writeText writes paragraphs in lines of at most 100 columns.
func writeText(b *bytes.Buffer, text []string) {
	const most = 100
	for _, p := range text {
		column := 0
		for word := range strings.FieldsSeq(p) {
			switch {
			case column > 0 && column+1+len([]rune(word)) > most:
				b.WriteString("\n")
				column = 0
			case column > 0:
				b.WriteString(" ")
				column++
			}
			b.WriteString(word)
			column += len([]rune(word))
		}
		b.WriteString("\n\n")
	}
}
