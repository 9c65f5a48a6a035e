package main

import (
	"strings"
	"unicode"
)

// page is text for people: no wider than the screen, and coloured where colours are shown. A colour
// only repeats information that words give.
type page struct {
	b     strings.Builder
	width int // cells; 0: no bound
	color bool
}

// style is how a terminal shows text (ECMA-48, Select Graphic Rendition).
type style string

const (
	plain  style = ""
	strong style = "1"
	faint  style = "2"
	alarm  style = "1;31"
	notice style = "33"
)

// cell is a field of a table.
type cell struct {
	text  string
	style style
}

// column is a column of a table. If the room is too small, the columns with the largest drop are
// left out first; 0 is never left out.
type column struct {
	title string
	drop  int
}

// table prints aligned rows below their titles, if there are any. The last column gets the room
// that is left. A row of one cell, in a table of several columns, is a line of text.
func (p *page) table(columns []column, rows [][]cell) {
	if columns[0].title != "" {
		header := make([]cell, len(columns))
		for i := range columns {
			header[i] = cell{columns[i].title, faint}
		}
		rows = append([][]cell{header}, rows...)
	}
	widths := make([]int, len(columns))
	for _, row := range rows {
		if isText(row, columns) {
			continue
		}
		for i := range row {
			row[i].text = oneLine(row[i].text)
			if row[i].text == "" && columns[i].title != "" {
				row[i].text = "-"
			}
			widths[i] = max(widths[i], cells(row[i].text))
		}
	}
	shown := p.fitting(columns, widths)
	for _, row := range rows {
		if isText(row, columns) {
			p.line(row...)
			continue
		}
		line := make([]cell, 0, 2*len(shown))
		for n, i := range shown {
			line = append(line, row[i])
			if n < len(shown)-1 {
				line = append(line, cell{text: strings.Repeat(" ", widths[i]-cells(row[i].text)+2)})
			}
		}
		p.line(line...)
	}
}

func isText(row []cell, columns []column) bool { return len(row) == 1 && len(columns) > 1 }

// minLastColumn is the least useful width of the last column.
const minLastColumn = 24

// fitting returns the columns that fit on the page.
func (p *page) fitting(columns []column, widths []int) []int {
	shown := make([]int, len(columns))
	for i := range shown {
		shown[i] = i
	}
	for p.width > 0 {
		total, worst := 0, -1
		for n, i := range shown {
			width := widths[i] + 2
			if n == len(shown)-1 {
				width = min(widths[i], minLastColumn)
			}
			total += width
			if columns[i].drop > 0 && (worst < 0 || columns[i].drop > columns[shown[worst]].drop) {
				worst = n
			}
		}
		if total <= p.width || worst < 0 {
			break
		}
		shown = append(shown[:worst], shown[worst+1:]...)
	}
	return shown
}

// line prints texts one after the other, as far as they fit.
func (p *page) line(texts ...cell) {
	wanted := 0
	for i := range texts {
		texts[i].text = oneLine(texts[i].text)
		wanted += cells(texts[i].text)
	}
	for i := len(texts) - 1; i >= 0; i-- {
		text := strings.TrimRight(texts[i].text, " ")
		wanted -= cells(texts[i].text) - cells(text)
		if texts[i].text = text; text != "" {
			break
		}
	}
	left := p.width
	for _, t := range texts {
		n := cells(t.text)
		if p.width > 0 && wanted > left && n >= left {
			p.styled(cut(t.text, left), t.style)
			break
		}
		p.styled(t.text, t.style)
		wanted, left = wanted-n, left-n
	}
	p.b.WriteByte('\n')
}

func (p *page) styled(text string, s style) {
	if !p.color || s == plain || text == "" {
		p.b.WriteString(text)
		return
	}
	p.b.WriteString("\x1b[" + string(s) + "m" + text + "\x1b[0m")
}

// cut shortens a text to a number of cells, and marks that the rest is missing.
func cut(text string, room int) string {
	if room <= 0 {
		return ""
	}
	end := 0
	for i, r := range text {
		if room -= runeCells(r); room < 1 {
			break
		}
		end = i + len(string(r))
	}
	return strings.TrimRight(text[:end], " ") + "…"
}

// cells returns the number of terminal columns that text takes.
func cells(text string) int {
	n := 0
	for _, r := range text {
		n += runeCells(r)
	}
	return n
}

// runeCells is an approximation of Unicode's East Asian Width (UAX #11): marks take no column,
// ideographs and pictographs two.
func runeCells(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 ||
		r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 ||
		r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000 && r <= 0x3fffd):
		return 2
	}
	return 1
}

func (p *page) gap() { p.b.WriteByte('\n') }

func (p *page) height() int { return strings.Count(p.b.String(), "\n") }

// text returns the first height lines of the page; 0: all lines.
func (p *page) text(height int) string {
	text := p.b.String()
	if height <= 0 {
		return text
	}
	end := 0
	for range height {
		i := strings.IndexByte(text[end:], '\n')
		if i < 0 {
			return text
		}
		end += i + 1
	}
	return text[:end]
}

// page returns an empty page of the width of the screen.
func (a *app) page() *page {
	p := &page{color: a.color}
	if a.screen != nil {
		p.width, _ = a.screen()
	}
	return p
}
