package calltest

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/plimsoll-dev/plimsoll"
)

// about makes an answer to a call about the job a, from one instant to another.
func about(began, ended int64, call Call, output any) Answer {
	call.Job = "a"
	return Answer{
		Began: began, Ended: ended, Calls: []porcupine.Operation{{Input: call, Output: output}},
	}
}

// Each fault of a history of calls is found, and a history without one is not.
func TestFaultsOfAHistoryOfCallsAreFound(t *testing.T) {
	create := func(began, ended int64, output any) Answer {
		return about(began, ended, Call{Kind: CreateJob, Count: 2}, output)
	}
	scale := func(began, ended int64, count int32, output any) Answer {
		return about(began, ended, Call{Kind: ScaleJob, Count: count}, output)
	}
	kill := func(began, ended int64, reason string, output any) Answer {
		return about(began, ended, Call{Kind: KillJob, Reason: reason}, output)
	}
	read := func(began, ended int64, shows Seen) Answer {
		return about(began, ended, Call{Kind: ReadJob}, shows)
	}
	active := func(began, ended int64, shows Seen) Answer {
		return about(began, ended, Call{Kind: ReadActive}, shows)
	}
	begun := create(1, 2, Done)
	for name, test := range map[string]struct {
		answers []Answer
		fault   bool
	}{
		"in order": {[]Answer{begun, scale(3, 4, 5, Done), read(5, 6, Seen{true, 5, ""})}, false},
		"an unknown scale has its effect late": {[]Answer{
			begun, scale(3, 4, 5, nil), read(5, 6, Seen{true, 2, ""}), read(7, 8, Seen{true, 5, ""}),
		}, false},
		"a further kill while tasks stop": {[]Answer{
			begun, kill(3, 4, "x", Done), kill(5, 6, "y", Done), read(7, 8, Seen{true, 2, "x"}),
		}, false},
		"a read that is too old": {[]Answer{begun, scale(3, 4, 5, Done), read(5, 6, Seen{true, 2, ""})}, true},
		"a job that is lost":     {[]Answer{begun, read(3, 4, Seen{})}, true},
		"a scale has its effect twice": {[]Answer{
			begun, scale(3, 4, 5, nil), read(5, 6, Seen{true, 5, ""}), scale(7, 8, 7, Done),
			read(9, 10, Seen{true, 7, ""}), read(11, 12, Seen{true, 5, ""}),
		}, true},
		"a kill that worked is refused": {[]Answer{
			begun, kill(3, 4, "x", Refused), read(5, 6, Seen{true, 2, "x"}),
		}, true},
		"a job that has ended is only in the archive": {[]Answer{
			begun, kill(3, 4, "x", Done), scale(5, 6, 5, Missing), active(7, 8, Seen{}),
			read(9, 10, Seen{true, 2, "x"}), create(11, 12, Refused),
		}, false},
		"its id is used again": {[]Answer{
			begun, kill(3, 4, "x", Done), create(5, 6, Done), read(7, 8, Seen{true, 2, ""}),
		}, false},
		"a job that has ended is lost": {[]Answer{
			begun, kill(3, 4, "x", Done), read(5, 6, Seen{}),
		}, true},
		"a job that runs is missing from the active ones": {[]Answer{begun, active(3, 4, Seen{})}, true},
		"a job that runs is not found to be scaled":       {[]Answer{begun, scale(3, 4, 5, Missing)}, true},
		"a job is created twice":                          {[]Answer{begun, create(3, 4, Done)}, true},
	} {
		if found := !porcupine.CheckOperations(Model, Operations(test.answers)); found != test.fault {
			t.Errorf("%s: a fault was found: %v, want %v", name, found, test.fault)
		}
	}
}

// A read may not show less than an answer before it began.
func TestReadsThatShowAnOlderVersionAreFound(t *testing.T) {
	read := func(began, ended int64, epoch, revision uint64) Answer {
		return Answer{
			Began: began, Ended: ended, Read: true, Version: plimsoll.Version{Epoch: epoch, Revision: revision},
		}
	}
	change := Answer{Began: 1, Ended: 4, Changed: "a", Revision: 7}
	for name, test := range map[string]struct {
		answers []Answer
		fault   bool
	}{
		"in order":                         {[]Answer{change, read(5, 6, 1, 7), read(7, 8, 2, 7)}, false},
		"while the change was under way":   {[]Answer{change, read(2, 6, 1, 6)}, false},
		"older than a change":              {[]Answer{change, read(5, 6, 1, 6)}, true},
		"older than a read":                {[]Answer{read(1, 2, 1, 9), read(3, 4, 1, 8)}, true},
		"of an older leader than a read":   {[]Answer{read(1, 2, 2, 8), read(3, 4, 1, 9)}, true},
		"reads of different ages together": {[]Answer{read(1, 4, 1, 9), read(2, 5, 1, 8)}, false},
	} {
		if found := StrictByVersion(test.answers) != nil; found != test.fault {
			t.Errorf("%s: a fault was found: %v, want %v", name, found, test.fault)
		}
	}
}
