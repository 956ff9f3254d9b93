// history turns samples into TSDB blocks that a Prometheus server serves at once: history DIR < samples.
//
// Input: one JSON object of labels a line, each a series; an empty line; then records of 20 bytes, little endian:
// series as uint32, milliseconds as int64, value as float64. Records come ordered by time, and one block holds a day
// of them. Text would be several gigabytes for the histories that the benchmarks need.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

const (
	day = int64(24 * time.Hour / time.Millisecond)
	// A commit per record would be slow, one per block would hold a whole day twice.
	commitEvery = 100_000
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: history DIR < samples")
		os.Exit(2)
	}
	samples, err := write(os.Args[1], bufio.NewReaderSize(os.Stdin, 1<<20))
	if err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		os.Exit(1)
	}
	fmt.Println(samples)
}

func write(dir string, input *bufio.Reader) (int, error) {
	series, err := readSeries(input)
	if err != nil {
		return 0, err
	}
	block := &block{dir: dir}
	record := make([]byte, 20)
	count := 0
	for {
		if _, err := io.ReadFull(input, record); errors.Is(err, io.EOF) {
			return count, block.close()
		} else if err != nil {
			return count, fmt.Errorf("record %d is cut: %w", count, err)
		}
		index := binary.LittleEndian.Uint32(record)
		at := int64(binary.LittleEndian.Uint64(record[4:]))
		value := math.Float64frombits(binary.LittleEndian.Uint64(record[12:]))
		if int(index) >= len(series) {
			return count, fmt.Errorf("record %d names series %d of %d", count, index, len(series))
		}
		if err := block.append(series[index], at, value); err != nil {
			return count, fmt.Errorf("record %d of series %d: %w", count, index, err)
		}
		count++
	}
}

func readSeries(input *bufio.Reader) ([]labels.Labels, error) {
	var series []labels.Labels
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("the list of series has no end: %w", err)
		}
		if len(line) == 1 {
			return series, nil
		}
		var names map[string]string
		if err := json.Unmarshal(line, &names); err != nil {
			return nil, fmt.Errorf("labels of series %d: %w", len(series), err)
		}
		series = append(series, labels.FromMap(names))
	}
}

// block is the day that is being written.
type block struct {
	dir      string
	writer   *tsdb.BlockWriter
	appender storage.Appender
	day      int64
	pending  int
}

func (b *block) append(series labels.Labels, at int64, value float64) error {
	if b.writer != nil && at/day != b.day {
		if err := b.close(); err != nil {
			return err
		}
	}
	if b.writer == nil {
		writer, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), b.dir, day)
		if err != nil {
			return err
		}
		b.writer, b.day, b.appender = writer, at/day, writer.Appender(context.Background())
	}
	if _, err := b.appender.Append(0, series, at, value); err != nil {
		return err
	}
	if b.pending++; b.pending == commitEvery {
		if err := b.appender.Commit(); err != nil {
			return err
		}
		b.pending, b.appender = 0, b.writer.Appender(context.Background())
	}
	return nil
}

func (b *block) close() error {
	if b.writer == nil {
		return nil
	}
	if err := b.appender.Commit(); err != nil {
		return err
	}
	if _, err := b.writer.Flush(context.Background()); err != nil {
		return err
	}
	err := b.writer.Close()
	b.writer, b.pending = nil, 0
	return err
}
