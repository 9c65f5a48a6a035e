package client

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// A server that cuts a stream because nobody reads it cannot send the reason. The client, which
// made the pause, can name it.
func TestALogThatBrokeAfterAPauseSaysWhy(t *testing.T) {
	broken := &plimsoll.Error{Code: plimsoll.CodeUnavailable, Msg: "the connection broke", Err: io.ErrUnexpectedEOF}
	if err := afterPause(broken, 70*time.Second); !strings.Contains(
		err.Error(), "nothing was read for 1m10s",
	) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after a pause: %v", err)
	}
	if err := afterPause(broken, time.Second); err.Error() != broken.Error() {
		t.Errorf("without a pause: %v", err)
	}
	other := plimsoll.Errorf(plimsoll.CodeNotFound, "there is no task")
	if err := afterPause(other, time.Hour); err.Error() != other.Error() {
		t.Errorf("another error: %v", err)
	}
}
