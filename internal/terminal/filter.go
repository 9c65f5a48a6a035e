package terminal

import "unicode/utf8"

// Filter reduces the output of a task to the content that a terminal is shown: text, line
// breaks, tabs, returns to the beginning of the line, and colours (Select Graphic Rendition). All
// other control sequences are dropped, such as those that write the clipboard, set the title, move
// the cursor, answer, or print the screen. It passes only complete sequences, so the result does
// not depend on where the bytes are cut.
//
// The states are those of Paul Williams's parser of the VT500 series, without those that only tell
// apart sequences that are dropped. A library for it (charmbracelet/x/ansi) also measures the width
// of text, and brings five modules for that.
type Filter struct {
	// OneLine is for lines that the caller writes behind a prefix. Returns to the beginning of the
	// line are dropped too, and Flush ends no colours: the caller ends them with each line.
	OneLine bool

	state   filterState
	partial []byte // begin of an incomplete rune. Invariant: less than utf8.UTFMax bytes
	codes   []byte // parameters of the sequence. Invariant: at most longestSequence bytes
	skipped int    // runes of a command that were dropped since it began
	colored bool   // the last colour sequence was not a reset
}

// filterState is the position of the filter in a control sequence.
type filterState uint8

const (
	inText         filterState = iota
	inEscape                   // behind ESC
	inIntermediate             // of a sequence of ESC
	inSequence                 // behind CSI: parameters
	inPrivate                  // in a sequence of CSI that is not a colour
	inCommand                  // in OSC, DCS, SOS, PM or APC, which end with BEL or ST
	inCommandEnd               // behind ESC in such a command
)

const (
	longestSequence = 64
	// longestCommand bounds the text that an unterminated command hides.
	longestCommand = 1 << 20
)

// ResetColors ends all colours.
const ResetColors = "\x1b[0m"

// Controls that begin and end sequences.
const (
	bel, substitute, cancel, esc, del = 0x07, 0x1a, 0x18, 0x1b, 0x7f
	c1DCS, c1SOS, c1CSI               = 0x90, 0x98, 0x9b
	c1ST, c1OSC, c1PM, c1APC          = 0x9c, 0x9d, 0x9e, 0x9f
)

// Append appends the visible part of data to dst. data continues the bytes of the last call.
func (f *Filter) Append(dst, data []byte) []byte {
	if len(f.partial) > 0 {
		data = append(f.partial, data...)
		f.partial = nil
	}
	for len(data) > 0 {
		if !utf8.FullRune(data) {
			f.partial = append(f.partial, data...)
			break
		}
		r, size := utf8.DecodeRune(data)
		dst, data = f.take(dst, r), data[size:]
	}
	return dst
}

// Flush appends the rest at the end of the output, and ends the colours.
func (f *Filter) Flush(dst []byte) []byte {
	if len(f.partial) > 0 && f.state == inText {
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	if f.colored && !f.OneLine {
		dst = append(dst, ResetColors...)
	}
	*f = Filter{OneLine: f.OneLine}
	return dst
}

func (f *Filter) take(dst []byte, r rune) []byte {
	switch f.state {
	case inText:
		return f.text(dst, r)
	case inCommand, inCommandEnd:
		return f.command(dst, r)
	}
	if r < ' ' || r >= del { // no sequence holds such a rune: this one ends here
		f.enter(inText)
		return f.text(dst, r)
	}
	switch {
	case f.state == inEscape:
		f.enter(behindEscape(r))
	case f.state == inSequence && r == 'm':
		dst = append(append(append(dst, "\x1b["...), f.codes...), 'm')
		f.colored = len(f.codes) > 0 && string(f.codes) != "0"
		f.enter(inText)
	case f.state == inSequence && r >= '0' && r <= ';' && len(f.codes) < longestSequence:
		f.codes = append(f.codes, byte(r))
	case f.state == inIntermediate && r >= '0', f.state != inIntermediate && r >= '@':
		f.enter(inText)
	case f.state == inSequence:
		f.enter(inPrivate)
	}
	return dst
}

func (f *Filter) enter(s filterState) { f.state, f.codes, f.skipped = s, f.codes[:0], 0 }

// behindEscape returns the state after ESC and a rune.
func behindEscape(r rune) filterState {
	switch r {
	case '[':
		return inSequence
	case ']', 'P', 'X', '^', '_':
		return inCommand
	}
	if r < '0' {
		return inIntermediate
	}
	return inText
}

// text handles a rune outside of sequences.
func (f *Filter) text(dst []byte, r rune) []byte {
	switch {
	case r == '\n', r == '\t', r == '\r' && !f.OneLine, !IsControl(r):
		return utf8.AppendRune(dst, r)
	case r == '\r':
		return append(dst, ' ')
	case r == esc:
		f.enter(inEscape)
	case r == c1CSI:
		f.enter(inSequence)
	case r == c1DCS, r == c1SOS, r == c1OSC, r == c1PM, r == c1APC:
		f.enter(inCommand)
	}
	return dst
}

// command handles a rune of a command to the terminal. The end of the line ends the command too, so
// that text after a false start of a command is shown again.
func (f *Filter) command(dst []byte, r rune) []byte {
	f.skipped++
	switch {
	case f.state == inCommandEnd && r == '\\', r == bel, r == c1ST, r == cancel, r == substitute:
		f.enter(inText)
	case f.state == inCommandEnd:
		f.enter(inEscape)
		return f.take(dst, r)
	case r == esc:
		f.state = inCommandEnd
	case r == '\n', f.skipped > longestCommand:
		f.enter(inText)
		return f.text(dst, r)
	}
	return dst
}
