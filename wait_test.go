package plimsoll

import (
	"strings"
	"testing"
)

// Each code has a sentence, and the cause holds every value in it.
func TestEveryCauseHasASentence(t *testing.T) {
	for code := WaitTurn; code < numWaitCodes; code++ {
		c := WaitCause{Code: code, Queue: "root.batch", Resource: "memory", Asked: 1 << 30}
		if text := c.String(); text == "" || strings.Contains(text, "this version") {
			t.Errorf("%v: %q; add its sentence to WaitCause.String in wait.go", code, text)
		}
	}
	for c, want := range map[WaitCause]string{
		{}:                                    "",
		{Code: WaitTurn, Queue: "root.batch"}: "waits for its turn in root.batch",
		{
			Code: WaitQueueMax, Queue: "root.batch",
		}: "root.batch, or a queue above it, runs as many jobs as it may",
		{
			Code: WaitQueueMax, Queue: "root.batch", Resource: "memory", Asked: 1 << 30,
		}: "root.batch is at its max: less memory was left than the 1Gi that a task asks for",
		{
			Code: WaitQueueMax, Queue: "root.batch", Resource: "nvidia.com/gpu", Asked: 4,
		}: "root.batch is at its max: less nvidia.com/gpu was left than the 4 that a task asks for",
		{
			Code: WaitUserMax, Queue: "root.ml", UserOrGroup: "ann", Resource: "cpu", Asked: 2000,
		}: "the limit of user ann in root.ml is reached: less cpu was left than the 2 that a task asks for",
		{
			Code: WaitGroupMax, Queue: "root", UserOrGroup: "dev",
		}: "the limit of group dev in root is reached: no more jobs may run",
		{
			Code: WaitGroupMax, Queue: "root", UserOrGroup: "*",
		}: "the limit of the other groups in root is reached: no more jobs may run",
		{
			Code: WaitOrder, Queue: "root.batch",
		}: "a job before it in root.batch does not fit and holds it back",
		{Code: numWaitCodes}: "waits for something that this version does not know; update it",
	} {
		if got := c.String(); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}
