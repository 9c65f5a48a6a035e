package main

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/plimsoll-dev/plimsoll"
)

// about makes an answer to a call about the job a, from one instant to another.
func about(began, ended int64, call jobCall, output any) answer {
	call.job = "a"
	return answer{
		began: began, ended: ended, calls: []porcupine.Operation{{Input: call, Output: output}},
	}
}

// Each fault of a history of calls is found, and a history without one is not.
func TestFaultsOfAHistoryOfCallsAreFound(t *testing.T) {
	create := func(began, ended int64, output any) answer {
		return about(began, ended, jobCall{kind: createJob, count: 2}, output)
	}
	scale := func(began, ended int64, count int32, output any) answer {
		return about(began, ended, jobCall{kind: scaleJob, count: count}, output)
	}
	kill := func(began, ended int64, reason string, output any) answer {
		return about(began, ended, jobCall{kind: killJob, reason: reason}, output)
	}
	read := func(began, ended int64, shows jobSeen) answer {
		return about(began, ended, jobCall{kind: readJob}, shows)
	}
	active := func(began, ended int64, shows jobSeen) answer {
		return about(began, ended, jobCall{kind: readActive}, shows)
	}
	begun := create(1, 2, callDone)
	for name, test := range map[string]struct {
		answers []answer
		fault   bool
	}{
		"in order": {[]answer{begun, scale(3, 4, 5, callDone), read(5, 6, jobSeen{true, 5, ""})}, false},
		"an unknown scale has its effect late": {[]answer{
			begun, scale(3, 4, 5, nil), read(5, 6, jobSeen{true, 2, ""}), read(7, 8, jobSeen{true, 5, ""}),
		}, false},
		"a further kill while tasks stop": {[]answer{
			begun, kill(3, 4, "x", callDone), kill(5, 6, "y", callDone), read(7, 8, jobSeen{true, 2, "x"}),
		}, false},
		"a read that is too old": {[]answer{begun, scale(3, 4, 5, callDone), read(5, 6, jobSeen{true, 2, ""})}, true},
		"a job that is lost":     {[]answer{begun, read(3, 4, jobSeen{})}, true},
		"a scale has its effect twice": {[]answer{
			begun, scale(3, 4, 5, nil), read(5, 6, jobSeen{true, 5, ""}), scale(7, 8, 7, callDone),
			read(9, 10, jobSeen{true, 7, ""}), read(11, 12, jobSeen{true, 5, ""}),
		}, true},
		"a kill that worked is refused": {[]answer{
			begun, kill(3, 4, "x", callRefused), read(5, 6, jobSeen{true, 2, "x"}),
		}, true},
		"a job that has ended is only in the archive": {[]answer{
			begun, kill(3, 4, "x", callDone), scale(5, 6, 5, callMissing), active(7, 8, jobSeen{}),
			read(9, 10, jobSeen{true, 2, "x"}), create(11, 12, callRefused),
		}, false},
		"its id is used again": {[]answer{
			begun, kill(3, 4, "x", callDone), create(5, 6, callDone), read(7, 8, jobSeen{true, 2, ""}),
		}, false},
		"a job that has ended is lost": {[]answer{
			begun, kill(3, 4, "x", callDone), read(5, 6, jobSeen{}),
		}, true},
		"a job that runs is missing from the active ones": {[]answer{begun, active(3, 4, jobSeen{})}, true},
		"a job that runs is not found to be scaled":       {[]answer{begun, scale(3, 4, 5, callMissing)}, true},
		"a job is created twice":                          {[]answer{begun, create(3, 4, callDone)}, true},
	} {
		if found := !porcupine.CheckOperations(jobsModel, operations(test.answers)); found != test.fault {
			t.Errorf("%s: a fault was found: %v, want %v", name, found, test.fault)
		}
	}
}

// A read may not show less than an answer before it began.
func TestReadsThatShowAnOlderVersionAreFound(t *testing.T) {
	read := func(began, ended int64, epoch, revision uint64) answer {
		return answer{
			began: began, ended: ended, read: true, version: plimsoll.Version{Epoch: epoch, Revision: revision},
		}
	}
	change := answer{began: 1, ended: 4, changed: "a", revision: 7}
	for name, test := range map[string]struct {
		answers []answer
		fault   bool
	}{
		"in order":                         {[]answer{change, read(5, 6, 1, 7), read(7, 8, 2, 7)}, false},
		"while the change was under way":   {[]answer{change, read(2, 6, 1, 6)}, false},
		"older than a change":              {[]answer{change, read(5, 6, 1, 6)}, true},
		"older than a read":                {[]answer{read(1, 2, 1, 9), read(3, 4, 1, 8)}, true},
		"of an older leader than a read":   {[]answer{read(1, 2, 2, 8), read(3, 4, 1, 9)}, true},
		"reads of different ages together": {[]answer{read(1, 4, 1, 9), read(2, 5, 1, 8)}, false},
	} {
		if found := strictByVersion(test.answers) != nil; found != test.fault {
			t.Errorf("%s: a fault was found: %v, want %v", name, found, test.fault)
		}
	}
}
