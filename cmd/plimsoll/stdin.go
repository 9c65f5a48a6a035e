package main

import (
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// unreadInput returns the number of bytes that wait in the standard input, if it is a file or a
// pipe; 0 for a terminal. It reads none of them.
func unreadInput() int {
	in := int(os.Stdin.Fd())
	if term.IsTerminal(in) {
		return 0
	}
	n, err := unix.IoctlGetInt(in, unix.TIOCINQ) // FIONREAD
	if err != nil {
		return 0 // such as /dev/null, or closed
	}
	return n
}

// inputNote prints, once, that run does not read its standard input, if bytes wait there.
type inputNote struct {
	a    *app
	said bool
}

func (n *inputNote) look() {
	if n.said || n.a.unread == nil || n.a.unread() == 0 {
		return
	}
	n.said = true
	n.a.notes.printf("plimsoll: run does not pass its standard input on, and the program reads an empty one; " +
		"name a file that its node has, or add </dev/null to leave this note out\n")
}
