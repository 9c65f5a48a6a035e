package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type jobFetchCmd struct {
	jobOrTaskArg
	Task   string `help:"Only this task of the job." placeholder:"ID"`
	Failed bool   `help:"Only tasks whose last attempt ended with another result than succeeded, also killed."`
	Dir    string `name:"output" short:"o" help:"Directory to write to, made if it is not there. Each task has a directory of its name in it." required:"" placeholder:"DIR"`
	Force  bool   `help:"Overwrite files that are there."`
}

// Help is the detail of the help text.
func (jobFetchCmd) Help() string {
	return example("plimsoll job fetch wordcount -o results", "plimsoll job fetch wordcount --failed -o failed",
		"plimsoll job fetch wordcount.map.3 -o results --force") + `

The outputs of a task are the files that its group names under outputs in the job file. They are kept
with its logs, and can be fetched once the task has ended. Symbolic links and special files are left
out. A file that is being fetched is called TASK.partial.`
}

// Run fetches the outputs of tasks, one task after the other.
func (cmd *jobFetchCmd) Run(ctx context.Context, a *app) (err error) {
	c, err := a.client()
	if err != nil {
		return err
	}
	wanted, err := cmd.lifetime(ctx, c)
	if err != nil {
		return err
	}
	task := wanted
	if cmd.Task != "" {
		if task, err = parseLifetime("--task", cmd.Task, wanted.uid.Text()); err != nil {
			return err
		}
		wanted.uid = task.uid
	}
	tasks, none, err := cmd.tasks(ctx, c, wanted, task)
	if err != nil {
		return err
	}
	if len(tasks) == 0 {
		a.notes.printf("%s\n", none)
		return nil
	}
	f := fetch{
		a: a, c: c, uid: wanted.uid.Text(), dir: cmd.Dir, force: cmd.Force, lost: unread{what: "outputs"},
		progress: progress{a: a},
	}
	defer func() { err = errors.Join(err, f.close()) }()
	defer f.progress.end()
	if err := f.tasks(ctx, tasks); err != nil {
		return err
	}
	f.progress.end()
	return f.tell()
}

// tasks returns the chosen tasks of a job. If there are none, the sentence says why. The command
// line names the job, or one task of it.
func (cmd *jobFetchCmd) tasks(
	ctx context.Context, c *client.Client, of, named lifetime,
) (chosen []plimsoll.Task, none string, err error) {
	task, isTask, err := findTask(ctx, c, named)
	switch {
	case err != nil:
		return nil, "", err
	case cmd.Task != "" && (!isTask || task.Job != of.id):
		return nil, "", plimsoll.Invalid(
			"--task", "%q is no task of %s; plimsoll task list --job %s names them", cmd.Task, of, of,
		)
	}
	tasks, none := []plimsoll.Task{task}, notFailed(named.id)
	if !isTask {
		none = noneFailed(of.id)
		if tasks, err = allTasks(ctx, c, client.TaskFilter{Job: of.id, JobUID: of.uid.Text()}); err != nil {
			return nil, "", err
		}
	}
	if len(tasks) == 0 {
		_, err := c.FindJob(ctx, of.job()) // a job that does not exist is an error
		return nil, of.id + " has no tasks", err
	}
	for i := range tasks {
		if !cmd.Failed || unsuccessful(&tasks[i]) {
			chosen = append(chosen, tasks[i])
		}
	}
	return chosen, none, nil
}

// fetch writes the outputs of tasks below a directory. No path leads out of it: root refuses links
// that do.
type fetch struct {
	a     *app
	c     *client.Client
	uid   string // of the job; empty: the newest
	dir   string
	root  *os.Root // the directory; nil before the first file
	force bool

	progress  progress
	drawn     time.Time
	done      int   // tasks
	of        int   // tasks
	files     int64 // whole ones
	bytes     int64
	waiting   int          // tasks that have not ended
	unstarted namedTasks   // they have no files
	empty     namedTasks   // tasks that were started and have no files
	lost      unread       // tasks
	refused   int64        // entries that nodes do not send
	changed   int64        // files that were changed while they were read
	example   string       // a refused entry or changed file
	declared  bool         // some group declares outputs
	without   error        // the first that does not
	file      *fetchedFile // the file under way; nil: none
	summary   *client.OutputSummary
}

func (f *fetch) tasks(ctx context.Context, tasks []plimsoll.Task) error {
	declares := map[string]bool{} // whether groups declare outputs, as far as is known
	f.of = len(tasks)
	for i := range tasks {
		t := &tasks[i]
		group := t.Job + "/" + t.Group
		declared, known := declares[group]
		if known && !declared {
			continue
		}
		if t.State != plimsoll.TaskFinished {
			f.waiting++
			continue
		}
		if declared && t.Attempt == 0 {
			f.unstarted.addUnstarted(t)
			continue
		}
		f.lost.read++
		before := f.entries()
		err := f.task(ctx, t.ID)
		var public *plimsoll.Error
		var local *localError
		switch {
		case err == nil:
			f.declared, declares[group] = true, true
			f.done++
			if f.entries() == before {
				f.noteEmpty(t)
			}
		case ctx.Err() != nil:
			return err
		case errors.As(err, &local):
			return local.error
		case errors.As(err, &public) && public.Code == plimsoll.CodeConflict && public.Field == "outputs":
			declares[group] = false
			f.without = err
			f.lost.read--
		case neverStarted(t) && plimsoll.CodeOf(err) == plimsoll.CodeNotFound: // it has nothing to be lost
			f.declared, declares[group] = true, true
			f.unstarted.addUnstarted(t)
			f.lost.read--
		default:
			f.declared, declares[group] = true, true
			f.lost.add(t.ID, err)
		}
	}
	return nil
}

// entries returns how many entries the tasks had so far, fetched or not.
func (f *fetch) entries() int64 { return f.files + f.changed + f.refused }

// noteEmpty notes a task that was fetched and has no files.
func (f *fetch) noteEmpty(t *plimsoll.Task) {
	if neverStarted(t) {
		f.unstarted.addUnstarted(t)
		return
	}
	f.empty.add(t.ID)
}

// localError is a fault of this machine, or an answer that must not be written to it. It ends the
// command.
type localError struct{ error }

// Unwrap returns the cause.
func (l *localError) Unwrap() error { return l.error }

// task fetches the outputs of one task.
func (f *fetch) task(ctx context.Context, id string) (err error) {
	defer func() { err = errors.Join(err, f.abandon()) }()
	begun := false
	for part, err := range f.c.Outputs(ctx, id, f.uid) {
		if err != nil && begun {
			return &brokenLog{err}
		}
		if err != nil {
			return err
		}
		begun = true
		if err := f.part(id, &part); err != nil {
			return err
		}
	}
	return f.finish(id)
}

func (f *fetch) part(task string, p *client.OutputPart) error {
	switch {
	case p.Summary != nil:
		f.summary = p.Summary
		if f.refused += p.Summary.Refused; f.example == "" && len(p.Summary.Refusals) > 0 {
			r := p.Summary.Refusals[0]
			f.example = task + "/" + r.Path + " " + r.Reason
		}
	case p.File != nil:
		if err := f.finish(task); err != nil {
			return err
		}
		file, err := f.begin(task, p.File)
		if err != nil {
			return &localError{err}
		}
		f.file = file
	default:
		if f.file == nil || f.file.got+int64(len(p.Data)) > f.file.Size {
			return &localError{plimsoll.Errorf(
				plimsoll.CodeInternal, "the node of %s has sent more bytes than it announced; its agent is faulty", task,
			)}
		}
		if _, err := f.file.to.Write(p.Data); err != nil {
			return &localError{fmt.Errorf("write %s: %w", f.file.path, err)}
		}
		f.file.got += int64(len(p.Data))
		f.bytes += int64(len(p.Data))
	}
	f.draw(task)
	return nil
}

// fetchedFile is a file that is being fetched.
type fetchedFile struct {
	client.OutputFile
	path    string // below the root
	partial string // name until it is whole
	to      *os.File
	got     int64
}

// open makes the directory before the first file. So a fetch without files leaves none.
func (f *fetch) open() (err error) {
	if f.root != nil {
		return nil
	}
	if err := os.MkdirAll(f.dir, 0o777); err != nil {
		return plimsoll.Invalid("--output", "%s cannot be made: %v", f.dir, cause(err))
	}
	if f.root, err = os.OpenRoot(f.dir); err != nil {
		return plimsoll.Invalid("--output", "%s cannot be written to: %v", f.dir, cause(err))
	}
	return nil
}

func (f *fetch) close() error {
	if f.root == nil {
		return nil
	}
	return f.root.Close() //nolint:wrapcheck // it names the directory
}

// begin opens the partial file of an output.
func (f *fetch) begin(task string, o *client.OutputFile) (*fetchedFile, error) {
	if !filepath.IsLocal(o.Path) || path.Clean(o.Path) != o.Path || !plimsoll.PlainName(o.Path) || o.Size < 0 ||
		!filepath.IsLocal(task) || path.Base(task) != task {
		return nil, plimsoll.Errorf(
			plimsoll.CodeInternal, "the node of %s has sent a file with the impossible path %.100q; its agent is faulty",
			task, o.Path,
		)
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	file := &fetchedFile{OutputFile: *o, path: path.Join(task, o.Path), partial: task + ".partial"}
	if _, err := f.root.Lstat(file.path); err == nil && !f.force {
		return nil, plimsoll.Errorf(
			plimsoll.CodeAlreadyExists, "%s exists; choose another directory, or give --force to overwrite files",
			filepath.Join(f.root.Name(), file.path),
		)
	}
	if err := f.root.MkdirAll(path.Dir(file.path), 0o777); err != nil {
		return nil, fmt.Errorf("make the directory of an output: %w", err)
	}
	if err := f.root.Remove(file.partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove what an earlier fetch has left: %w", err)
	}
	mode := fs.FileMode(0o666)
	if o.Executable {
		mode = 0o777
	}
	to, err := f.root.OpenFile(file.partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fmt.Errorf("write an output: %w", err)
	}
	file.to = to
	return file, nil
}

// finish gives the file under way its name, if it is whole.
func (f *fetch) finish(task string) error {
	file := f.file
	if file == nil {
		return nil
	}
	if file.got < file.Size {
		if f.changed++; f.example == "" {
			f.example = file.path + " changed"
		}
		return f.abandon()
	}
	f.file = nil
	if err := file.to.Close(); err != nil {
		return &localError{fmt.Errorf("write %s: %w", file.path, err)}
	}
	if err := f.root.Rename(file.partial, file.path); err != nil {
		return &localError{errors.Join(fmt.Errorf("name %s: %w", file.path, err), f.root.Remove(file.partial))}
	}
	f.files++
	return nil
}

// abandon removes the file under way.
func (f *fetch) abandon() error {
	file := f.file
	if file == nil {
		return nil
	}
	f.file = nil
	if err := errors.Join(file.to.Close(), f.root.Remove(file.partial)); err != nil {
		return &localError{fmt.Errorf("remove a part of %s: %w", file.path, err)}
	}
	return nil
}

// drawEvery is the interval of progress.
const drawEvery = 100 * time.Millisecond

// draw shows the progress on a terminal.
func (f *fetch) draw(task string) {
	now := f.a.now()
	if !f.a.live || now.Sub(f.drawn) < drawEvery || f.summary == nil {
		return
	}
	f.drawn = now
	f.progress.mu.Lock()
	defer f.progress.mu.Unlock()
	f.progress.line = oneLine(fmt.Sprintf("%d/%d tasks, %s files, %s; %s has %s files, %s",
		f.done, f.of, thousands(int(f.files)), plimsoll.FormatQuantity(plimsoll.Disk, f.bytes), task,
		thousands(int(f.summary.Files)), plimsoll.FormatQuantity(plimsoll.Disk, f.summary.Bytes)))
	f.progress.draw()
}

// tell prints how much was fetched, and how much is missing. Outputs that should be there and are
// not fail the command.
func (f *fetch) tell() error {
	if !f.declared && f.without != nil {
		return f.without
	}
	if f.files == 0 {
		f.a.notes.printf("fetched no file\n")
	} else {
		f.a.notes.printf("fetched %s of %s to %s\n", counted(f.files, "file"), counted(f.bytes, "byte"), f.dir)
	}
	if f.waiting > 0 {
		f.a.notes.printf("plimsoll: tasks that have not ended, for a later fetch: %s\n", thousands(f.waiting))
	}
	f.empty.tell(f.a, "wrote no outputs")
	f.unstarted.tell(f.a, "never started")
	if left := f.refused + f.changed; left > 0 {
		f.a.notes.printf("plimsoll: entries left out: %s, the first of them %s\n", thousands(int(left)), f.example)
	}
	if f.lost.tell(f.a, "tasks") || f.changed > 0 {
		return exitError(exitFailed)
	}
	return nil
}
