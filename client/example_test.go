package client_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// A job is submitted and watched until it has ended.
func ExampleClient_SubmitJob() {
	ctx := context.Background()
	c, stop, err := new(gateway).start() // a program calls client.New(client.Config{Server: "http://127.0.0.1:9080"})
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	job, err := c.SubmitJob(ctx, plimsoll.JobSpec{
		ID: "hello", Queue: "root.default",
		Groups: []plimsoll.GroupSpec{{Name: "main", Count: 1, Command: []string{"echo", "hello"}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for status, err := range c.WatchJob(ctx, job.Spec.ID) {
		if err != nil {
			log.Fatal(err)
		}
		if status.State.Ended() {
			fmt.Println(status.ID, status.State)
		}
	}
	// Output: hello Completed
}

// The output of a task is read piece by piece.
func ExampleClient_Logs() {
	c, stop, err := new(gateway).start()
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	for chunk, err := range c.Logs(context.Background(), "hello.main.0", client.LogOptions{Stream: "stdout"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s", chunk.Stream, chunk.Data)
	}
	// Output:
	// stdout: hello
	// stderr: oops
}

// Lists come page by page; leaving the loop stops the reading.
func ExampleClient_Jobs() {
	c, stop, err := new(gateway).start()
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	n := 0
	for job, err := range c.Jobs(
		context.Background(), client.JobFilter{States: []plimsoll.JobState{plimsoll.JobRunning}},
	) {
		if err != nil {
			log.Fatal(err)
		}
		if n++; n == 3 {
			fmt.Println(job.ID)
			break
		}
	}
	// Output: job-02
}

// The running tasks of a job are followed: first all of them, then each that begins or ends to run.
func ExampleClient_WatchTasks() {
	c, stop, err := new(gateway).start()
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	running := client.TaskFilter{Job: "wordcount", States: []plimsoll.TaskState{plimsoll.TaskRunning}}
	for change, err := range c.WatchTasks(context.Background(), running, client.WatchPoint{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(strings.TrimSpace(change.Type.String() + " " + change.Object.ID))
		if change.Type == client.ChangeLeft {
			break // change.Point is where a later watch resumes
		}
	}
	// Output:
	// reset
	// present wordcount.map.0
	// synced
	// added wordcount.map.1
	// left wordcount.map.0
}
