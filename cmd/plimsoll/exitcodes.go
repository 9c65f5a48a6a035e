package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Exit codes of all commands. Those of tasks with which run ends stand beside them in exitCodes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// exitCodes is the table of all exit codes in the help and in docs/reference/exit-codes.md.
var exitCodes = [...]struct{ code, means string }{
	{fmt.Sprint(exitOK), "it was done"},
	{fmt.Sprint(exitFailed), "it failed, or the answer is no: the job did not complete, nothing is there"},
	{fmt.Sprint(exitUsage), "it was called wrongly, or with a wrong file or value; nothing was done"},
	{"126", "run: the program is there and cannot be executed"},
	{"127", "run: there is no such program"},
	{"128+N", "run: signal N ended the program"},
	{fmt.Sprint(exitInterrupted), "it was interrupted"},
	{"other", "run: the exit code of the program"},
}

// exitCodesHelp is the table as help prints it.
func exitCodesHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, row := range exitCodes {
		fmt.Fprintf(&b, "\n  %-5s  %s", row.code, row.means)
	}
	return b.String()
}

// exitError ends the process with a code when everything that there is to say has been said.
type exitError int

func (e exitError) Error() string { return "exit" }

// exitCodeFor is the exit code for what a command returned. A command line that cannot be read ends
// with exitUsage before there is a command.
func exitCodeFor(err error) int {
	var said exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &said):
		return int(said)
	case canceled(err):
		return exitInterrupted
	case plimsoll.CodeOf(err) == plimsoll.CodeInvalid:
		return exitUsage
	}
	return exitFailed
}

// exitCodeOfTask is the exit code of run for the task that it ran. A task has one, unless it never
// started for another reason than its program, or was not seen to end.
func exitCodeOfTask(t *plimsoll.Task) int {
	switch {
	case t.Result == plimsoll.ResultSucceeded:
		return exitOK
	case t.ExitCode >= 1 && t.ExitCode <= 255:
		return int(t.ExitCode)
	}
	return exitFailed
}
