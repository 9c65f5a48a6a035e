package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

const identityFile = "node.json"

// identity is the id and incarnation of the agent's node. Each start of the agent raises the
// incarnation, so that late messages of an earlier one are refused.
type identity struct {
	Node        string `json:"node"`
	Incarnation uint64 `json:"incarnation"`
}

// lockDir makes the directory and takes its lock, which the kernel releases when the process ends.
func lockDir(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, &plimsoll.Error{
			Code: plimsoll.CodeDenied, Op: "start the agent", Field: "dir",
			Msg: dir + " cannot be made; choose another directory", Err: err,
		}
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
		return nil, &plimsoll.Error{
			Code: plimsoll.CodeDenied, Op: "start the agent", Field: "dir",
			Msg: dir + " is not writable; give the agent a directory that it may write to", Err: err,
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the lock of the agent's directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		closed := f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(plimsoll.Errorf(plimsoll.CodeAlreadyRunning,
				"another agent uses the directory %s; stop it, or give this one another directory", dir), closed)
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), closed)
	}
	return f.Close, nil
}

// beginIncarnation reads the identity and makes a new incarnation durable before it is used. In a
// new directory incarnations start from the wall clock, not from 1. So two machines with the same
// id by mistake have different incarnations, and a reinstalled machine does not repeat an old one.
func beginIncarnation(dir, node string, now time.Time) (identity, error) {
	path := filepath.Join(dir, identityFile)
	var id identity
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		id.Incarnation = uint64(max(now.UnixMilli(), 0))
	case err != nil:
		return identity{}, fmt.Errorf("read the identity of this node: %w", err)
	default:
		if err := json.Unmarshal(data, &id); err != nil || id.Node == "" || id.Incarnation == 0 {
			return identity{}, &plimsoll.Error{
				Code: plimsoll.CodeCorrupt, Op: "read the identity of this node", Err: err,
				Msg: path + " is damaged; remove it to let the node begin anew (tasks that run on it are then reported as lost)",
			}
		}
	}
	if node == "" {
		if node = id.Node; node == "" {
			if node, err = hostID(); err != nil {
				return identity{}, err
			}
		}
	}
	if id.Node != "" && id.Node != node {
		return identity{}, plimsoll.Invalid(
			"node", "%s belongs to the node %q, not %q; use its own id, or another directory", dir, id.Node, node,
		)
	}
	id.Node = node
	id.Incarnation++
	return id, id.write(dir)
}

// write makes an incarnation durable.
func (id identity) write(dir string) error {
	data, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("encode the identity of this node: %w", err)
	}
	if err := writeDurably(filepath.Join(dir, identityFile), append(data, '\n')); err != nil {
		return fmt.Errorf("record a new incarnation of the node: %w", err)
	}
	return nil
}

// rebase restarts the incarnation from the clock, if it is ahead of the clock. A coordinator
// refuses an incarnation from the future, which a wrong clock at the first start may have caused.
// changed reports whether the incarnation is a new one.
func (id *identity) rebase(dir string, now time.Time) (changed bool, err error) {
	next := uint64(max(now.UnixMilli(), 1))
	if next >= id.Incarnation {
		return false, nil
	}
	rebased := identity{id.Node, next}
	if err := rebased.write(dir); err != nil {
		return false, err
	}
	*id = rebased
	return true, nil
}

// writeDurably replaces a file: after a crash it is the whole old or the whole new one.
func writeDurably(path string, data []byte) error {
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
