package sample

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

const (
	groupFiles = 6 // descriptors of a group at most
	fileShare  = 8 // the groups' part of the process's descriptors: one in eight
)

// defaultFiles is how many descriptors the groups may keep.
func defaultFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 / fileShare // what every Linux grants
	}
	return int(min(limit.Cur, 1<<20)) / fileShare
}

// open opens the counters of a group, and keeps them open if there is room.
func (s *Sampler) open(t *tracked) error {
	r, err := t.group.Reader(t.options)
	if err != nil {
		return err
	}
	if s.room == 0 {
		return r.Close() // it was opened to see whether the group is there
	}
	s.room--
	t.reader = r
	return nil
}

// close closes what a group keeps open.
func (s *Sampler) close(t *tracked) error {
	if t.reader == nil {
		return nil
	}
	s.room++
	return t.reader.Close()
}

// read reads the counters of a group. If known is false, gone says whether the group is.
func (s *Sampler) read(t *tracked) (known, gone bool) {
	if t.reader != nil {
		err := t.reader.Read(s.buf, &s.reading, (s.sequence+t.phase)%RefreshSweeps == 0)
		return err == nil, err != nil
	}
	r, err := t.group.Reader(t.options)
	if err != nil {
		return false, errors.Is(err, cgroup.ErrGone) // or there is no descriptor for it now
	}
	err = r.Read(s.buf, &s.reading, true)
	s.closing = errors.Join(s.closing, r.Close())
	return err == nil, err != nil
}
