package queue_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// TestDismissedAccountsGiveTheirPlaceBack lets an account give its admission back, from each state
// in which it may be, and asks for another one.
func TestDismissedAccountsGiveTheirPlaceBack(t *testing.T) {
	names := placement.NewNames()
	tree := queue.New(names, &plimsoll.QueueConfig{
		Name: plimsoll.RootQueue, Parent: true, MaxJobs: 1,
		Queues: []plimsoll.QueueConfig{{Name: "a"}},
	})
	leaf := tree.Find("root.a")
	var one, two, three queue.Account
	for i, a := range []*queue.Account{&one, &two, &three} {
		a.ID = int32(i)
		tree.Enter(a, leaf, queue.Owner{}, int64(i))
		tree.Admit(a)
	}
	check := func(what string, first *queue.Account, dismissed int32) {
		t.Helper()
		for a := tree.Readmit(); a != nil; a = tree.Readmit() { // it returns accounts that it parks elsewhere, too
		}
		if err := tree.Check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, a := range []*queue.Account{&one, &two, &three} {
			if a.Admitted() != (a == first) {
				t.Fatalf("%s: account %d is admitted: %t", what, a.ID, a.Admitted())
			}
		}
		if tree.Root.Dismissed != dismissed || leaf.Dismissed != dismissed {
			t.Fatalf("%s: %d are dismissed, not %d", what, tree.Root.Dismissed, dismissed)
		}
	}
	check("the first came first", &one, 0)
	tree.Dismiss(&one)
	check("the first was dismissed", &two, 1)
	tree.Dismiss(&one)
	check("once more", &two, 1)
	tree.Dismiss(&three)
	check("a parked one was dismissed", &two, 2)
	if full := tree.Admit(&one); full != &tree.Root.Quota || one.Parked() != full {
		t.Fatalf("the first is parked at %v", one.Parked())
	}
	check("the first waits again", &two, 1)
	tree.Dismiss(&two)
	check("the second was dismissed", &one, 2)
	tree.Leave(&three)
	check("the third left", &one, 1)
	tree.Leave(&one)
	check("the first left", nil, 1)
	if full := tree.Admit(&two); full != nil {
		t.Fatalf("the second is parked at %s", full.At().Path)
	}
	check("the second is back", &two, 0)
}
