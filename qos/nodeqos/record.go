package nodeqos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/qos"
)

// Files of the loop. They are for a loop that is started again on the same boot. Control groups do
// not outlive the kernel, so nothing is synced, and the ledger of another boot is not used.
const (
	ledgerName     = "ledger.json"
	predictorsName = "predictors.json"
)

// recordEvery is the greatest age of recorded counts and cool-downs. Changes of tasks are recorded
// at once.
const recordEvery = 10 * time.Second

// ledgerFile is the content of the file ledgerName.
type ledgerFile struct {
	Boot   string // id of the boot in which it was written
	Ledger json.RawMessage
}

func (l *Loop) path(name string) string { return filepath.Join(l.cfg.directory(), name) }

func (l *Loop) makeDirectory() error {
	if err := os.MkdirAll(l.cfg.directory(), 0o700); err != nil {
		return fmt.Errorf("make the directory of the QoS loop: %w", err)
	}
	return nil
}

// bootID returns the id of this boot; empty if it is not known.
func (l *Loop) bootID() string {
	proc := l.cfg.Proc
	if proc == "" {
		proc = "/proc"
	}
	data, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// loadLedger reads the ledger of an earlier loop. An unreadable file is moved aside, and the groups
// then show which changes to give back.
func (l *Loop) loadLedger() *qos.Ledger {
	path := l.path(ledgerName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return qos.NewLedger()
	}
	var file ledgerFile
	var ledger *qos.Ledger
	if err == nil {
		if err = json.Unmarshal(data, &file); err == nil {
			ledger, err = qos.DecodeLedger(file.Ledger)
		}
	}
	if err != nil {
		aside := path + ".bad"
		l.deps.Events.Trouble(Trouble{Kind: TroubleLedger, Path: aside, Err: errors.Join(err, os.Rename(path, aside))})
		return qos.NewLedger()
	}
	if boot := l.bootID(); file.Boot != boot {
		l.deps.Events.OtherBoot(boot)
		return qos.NewLedger()
	}
	return ledger
}

// saveLedger writes the ledger if a step was done, and from time to time while rules count. A full
// disk does not stop the loop: changes can also be found by comparing a group with its
// specification.
func (l *Loop) saveLedger(at int64) {
	s := &l.state
	counts := s.result != nil && s.result.Spoke && at-s.savedAt >= int64(recordEvery)
	if !s.dirty && !counts {
		return
	}
	ledger, err := s.ledger.Encode()
	if err == nil {
		var data []byte
		if data, err = json.Marshal(ledgerFile{Boot: l.bootID(), Ledger: ledger}); err == nil {
			err = replace(l.path(ledgerName), data)
		}
	}
	if err != nil {
		l.trouble(TroubleSaveLedger, err)
		return
	}
	s.dirty, s.savedAt = false, at
}

// replace writes a file as a whole, or keeps the old one.
func replace(path string, data []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return errors.Join(err, ignoreMissing(os.Remove(temporary)))
	}
	return os.Rename(temporary, path)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
