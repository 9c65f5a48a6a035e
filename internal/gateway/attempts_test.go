package gateway

import (
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// attemptsOf returns failed attempts with consecutive numbers.
func attemptsOf(node string, first, last int32) (attempts []plimsoll.Attempt) {
	for n := first; n <= last; n++ {
		attempts = append(attempts, plimsoll.Attempt{Number: n, Node: node, Result: plimsoll.ResultFailed})
	}
	return attempts
}

// keepAttempts writes attempts of the task a.map.0 into the archive, a chunk for each first number.
func (c *cell) keepAttempts(j *cellJob, firsts ...int32) {
	c.t.Helper()
	var chunks []archive.Attempts
	for _, first := range firsts {
		chunks = append(chunks, archive.Attempts{
			UID: j.status.UID, TaskKey: wire.TaskKey("a", "map", 0), First: first,
			Value: wire.AppendAttempts(nil, attemptsOf("n0", first, first+plimsoll.AttemptChunk-1)),
		})
	}
	var err error
	if c.mark, err = c.archive.Write(c.t.Context(), 1, nil, chunks); err != nil {
		c.t.Fatal(err)
	}
}

// numbersOf returns the numbers of the attempts of an answer.
func numbersOf(resp *pb.ListAttemptsResponse) (numbers []int32) {
	for _, a := range resp.GetAttempts() {
		numbers = append(numbers, a.GetNumber())
	}
	return numbers
}

// numbersFrom returns consecutive numbers.
func numbersFrom(first, last int32) (numbers []int32) {
	for n := first; n <= last; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}

// Attempts that have left the record of a task are those of the archive, also when the job has gone
// there. An attempt on both sides, or in two chunks, is listed once. Those that were dropped before
// the archive had them are missing.
func TestAttemptsAreThoseOfTheArchiveThenThoseOfTheRecord(t *testing.T) {
	c := newCell(t)
	s := c.serve(Config{})
	j := c.submit("a", "ann", "root.x", nil, 1)
	j.tasks[0].Attempt, j.tasks[0].Attempts = 40, attemptsOf("n2", 33, 39)
	c.f.put(putTask(j.tasks[0]))
	c.keepAttempts(j, 1, 5, 17, 25, 33)
	all := append(numbersFrom(1, 12), numbersFrom(17, 40)...)
	check := func(step string, after int32, archived bool) {
		t.Helper()
		got := must(t, s.jobs.ListAttempts, &pb.ListAttemptsRequest{Task: "a.map.0", After: after})
		want := slices.DeleteFunc(slices.Clone(all), func(n int32) bool { return n <= after })
		if numbers := numbersOf(got); !slices.Equal(numbers, want) || got.GetArchived() != archived {
			t.Errorf("%s: %v, archived %v; want %v", step, numbers, got.GetArchived(), want)
		}
		if i := slices.Index(want, 33); got.GetAttempts()[i].GetNode() != "n2" {
			t.Errorf("%s: attempt 33 is not that of the record", step)
		}
	}
	for _, after := range []int32{0, 6, 8, 11, 14, 24, 30, 32} {
		check("while it runs", after, false)
	}
	c.end(j, 1)
	c.archived(j)
	check("in the archive", 0, true)
	check("in the archive, behind some", 26, true)
	if _, err := call(s.jobs.ListAttempts, &pb.ListAttemptsRequest{
		Task: "a.map.0", After: -1,
	}); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("%v", err)
	}
}

// An answer has a bounded number of attempts, and says where the next one begins.
func TestManyAttemptsAreListedInParts(t *testing.T) {
	c := newCell(t)
	s := c.serve(Config{})
	j := c.submit("a", "ann", "root.x", nil, 1)
	const begin = maxAttempts + 24 + 1 // of the record
	j.tasks[0].Attempt, j.tasks[0].Attempts = begin+16, attemptsOf("n2", begin, begin+15)
	c.f.put(putTask(j.tasks[0]))
	for first := int32(1); first < begin; first += plimsoll.AttemptChunk {
		c.keepAttempts(j, first)
	}
	for _, after := range []int32{0, 3} {
		var numbers []int32
		for next, calls := after, 0; calls == 0 || next > 0; calls++ {
			got := must(t, s.jobs.ListAttempts, &pb.ListAttemptsRequest{Task: "a.map.0", After: next})
			if numbers, next = append(numbers, numbersOf(got)...), got.GetNext(); calls > 1 {
				t.Fatal("there is no end of parts")
			}
		}
		if !slices.Equal(numbers, numbersFrom(after+1, begin+16)) {
			t.Errorf("behind %d there are %d attempts", after, len(numbers))
		}
	}
}

func TestDamagedAttemptsAreSaidToBeDamaged(t *testing.T) {
	c := newCell(t)
	s := c.serve(Config{})
	j := c.submit("a", "ann", "root.x", nil, 1)
	j.tasks[0].Attempt, j.tasks[0].Attempts = 40, attemptsOf("n2", 9, 39)
	c.f.put(putTask(j.tasks[0]))
	var err error
	c.mark, err = c.archive.Write(t.Context(), 1, nil, []archive.Attempts{
		{UID: j.status.UID, TaskKey: wire.TaskKey("a", "map", 0), First: 1, Value: []byte{1<<3 | 2, 200}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = call(s.jobs.ListAttempts, &pb.ListAttemptsRequest{Task: "a.map.0"})
	if plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		t.Errorf("%v", err)
	}
}
