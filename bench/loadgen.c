/* The load generator: librdkafka driven from C, so that the client's cost is librdkafka's and not Python's.
 *
 * A Python loop around produce() tops out near the rates that are to be measured, on cores that the broker needs too.
 * This program is compiled when the benchmark runs, against the very librdkafka that the confluent-kafka wheel brings;
 * the wheel has no headers, so the few functions used are declared here. They are librdkafka's public, stable ABI.
 *
 *   loadgen produce  -t TOPIC -n MESSAGES -f PAYLOADS -s SIZE [-p PARTITIONS -r RUN] [-X name=value]...
 *   loadgen consume  -t TOPIC -n MESSAGES -p PARTITIONS [-X name=value]...
 *   loadgen latency  -t TOPIC -s SIZE -f PAYLOADS -R RATE -w WARMUP_S -d DURATION_S [-X ..] [-P ..] [-C ..]
 *   loadgen first    -t TOPIC -s SIZE -f PAYLOADS [-X name=value]...
 *
 * -X sets a property of every client, -P of the producer only, -C of the consumer only. PAYLOADS is a file of records
 * of SIZE bytes one after another. With -p and -r, `produce` deals runs of RUN messages to the partitions in turn;
 * without, librdkafka's partitioner decides.
 *
 * It speaks JSON lines: {"event":"ready"} when its clients are set up, then it waits for a line on its input (so that
 * the caller can read the broker's CPU time), works, and prints one object with what it measured. Times are of
 * CLOCK_MONOTONIC, which is also Python's time.monotonic().
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_message_s {
        int err;
        rd_kafka_topic_t *rkt;
        int32_t partition;
        void *payload;
        size_t len;
        void *key;
        size_t key_len;
        int64_t offset;
        void *_private;
} rd_kafka_message_t;

enum { RD_KAFKA_PRODUCER = 0, RD_KAFKA_CONSUMER = 1 };
enum { RD_KAFKA_MSG_F_COPY = 0x2, RD_KAFKA_MSG_F_PARTITION = 0x8 };
enum { RD_KAFKA_RESP_ERR__QUEUE_FULL = -184, RD_KAFKA_RESP_ERR__PARTITION_EOF = -191 };
#define RD_KAFKA_PARTITION_UA ((int32_t)-1)
#define RD_KAFKA_OFFSET_BEGINNING ((int64_t)-2)
#define RD_KAFKA_OFFSET_END ((int64_t)-1)

const char *rd_kafka_version_str(void);
const char *rd_kafka_err2str(int err);
int rd_kafka_last_error(void);
rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *conf, const char *name, const char *value, char *errstr, size_t errstr_size);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *conf,
                                 void (*dr_msg_cb)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *conf, char *errstr, size_t errstr_size);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *rk, const char *topic, rd_kafka_topic_conf_t *conf);
int rd_kafka_produce(rd_kafka_topic_t *rkt, int32_t partition, int flags, void *payload, size_t len, const void *key,
                     size_t key_len, void *opaque);
int rd_kafka_produce_batch(rd_kafka_topic_t *rkt, int32_t partition, int flags, rd_kafka_message_t *messages,
                           int count);
int rd_kafka_poll(rd_kafka_t *rk, int timeout_ms);
int rd_kafka_flush(rd_kafka_t *rk, int timeout_ms);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *rk);
int rd_kafka_consume_start_queue(rd_kafka_topic_t *rkt, int32_t partition, int64_t offset, rd_kafka_queue_t *queue);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *queue, int timeout_ms, rd_kafka_message_t **messages,
                                     size_t count);
void rd_kafka_message_destroy(rd_kafka_message_t *message);

#define CHUNK_MESSAGES 1000
#define PROPERTIES_MAX 64
#define STALL_TIMEOUT_S 120
#define FIRST_TIMEOUT_S 180

typedef struct {
        const char *topic, *payloads_path;
        const char *properties[PROPERTIES_MAX];
        char property_of[PROPERTIES_MAX];
        int property_count;
        long messages, size_bytes, partitions, run, rate, warmup_s, duration_s;
} options_t;

static options_t options;
static char *payloads;
static long payload_count;
static atomic_long delivered, failed;
static atomic_int first_error;
static atomic_llong delivered_at_ns;

static void die(const char *what, const char *why) {
        printf("{\"error\":\"%s: %s\"}\n", what, why);
        exit(1);
}

static int64_t now_ns(void) {
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static double cpu_s(void) {
        struct rusage used;
        getrusage(RUSAGE_SELF, &used);
        return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void ready_then_go(void) {
        char line[16];
        printf("{\"event\":\"ready\",\"librdkafka\":\"%s\"}\n", rd_kafka_version_str());
        fflush(stdout);
        if (fgets(line, sizeof line, stdin) == NULL)
                exit(0);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
        (void)rk, (void)opaque;
        if (message->err) {
                int none = 0;
                atomic_compare_exchange_strong(&first_error, &none, message->err);
                atomic_fetch_add_explicit(&failed, 1, memory_order_relaxed);
        } else if (atomic_fetch_add_explicit(&delivered, 1, memory_order_relaxed) == 0)
                atomic_store(&delivered_at_ns, now_ns());
}

static rd_kafka_t *new_client(int type) {
        char why[512];
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        for (int i = 0; i < options.property_count; i++) {
                char of = options.property_of[i];
                if ((of == 'P' && type != RD_KAFKA_PRODUCER) || (of == 'C' && type != RD_KAFKA_CONSUMER))
                        continue;
                char *name = strdup(options.properties[i]), *equals = strchr(name, '=');
                if (equals == NULL)
                        die("a property needs name=value", name);
                *equals = 0;
                if (rd_kafka_conf_set(conf, name, equals + 1, why, sizeof why))
                        die("property refused", why);
                free(name);
        }
        if (type == RD_KAFKA_PRODUCER)
                rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
        rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
        if (rk == NULL)
                die("no client", why);
        return rk;
}

static rd_kafka_topic_t *new_topic(rd_kafka_t *rk) {
        rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, options.topic, NULL);
        if (topic == NULL)
                die("no topic", rd_kafka_err2str(rd_kafka_last_error()));
        return topic;
}

static void load_payloads(void) {
        struct stat facts;
        int fd = open(options.payloads_path, O_RDONLY);
        if (fd < 0 || fstat(fd, &facts))
                die(options.payloads_path, strerror(errno));
        payload_count = facts.st_size / options.size_bytes;
        if (payload_count < 1)
                die(options.payloads_path, "holds no record");
        payloads = mmap(NULL, facts.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
        if (payloads == MAP_FAILED)
                die(options.payloads_path, strerror(errno));
}

static char *payload(long index) { return payloads + (index % payload_count) * options.size_bytes; }

static void await_deliveries(rd_kafka_t *rk, long count) {
        long seen = -1;
        int64_t seen_at_ns = now_ns();
        while (delivered + failed < count) {
                rd_kafka_poll(rk, 100);
                if (delivered + failed != seen) {
                        seen = delivered + failed;
                        seen_at_ns = now_ns();
                } else if (now_ns() - seen_at_ns > STALL_TIMEOUT_S * 1000000000LL)
                        die("stalled", "no delivery report for too long");
        }
}

static void produce_one(rd_kafka_t *rk, rd_kafka_topic_t *topic, long index, int32_t partition) {
        while (rd_kafka_produce(topic, partition, 0, payload(index), options.size_bytes, NULL, 0, NULL) != 0) {
                if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                        die("produce", rd_kafka_err2str(rd_kafka_last_error()));
                rd_kafka_poll(rk, 10);
        }
}

static void produce_all(rd_kafka_t *rk, rd_kafka_topic_t *topic) {
        rd_kafka_message_t chunk[CHUNK_MESSAGES];
        int flags = options.run ? RD_KAFKA_MSG_F_PARTITION : 0, pending = 0;
        long next = 0;
        while (next < options.messages || pending) {
                while (pending < CHUNK_MESSAGES && next < options.messages) {
                        rd_kafka_message_t *message = &chunk[pending++];
                        memset(message, 0, sizeof *message);
                        message->payload = payload(next);
                        message->len = options.size_bytes;
                        message->partition =
                            options.run ? (int32_t)(next / options.run % options.partitions) : RD_KAFKA_PARTITION_UA;
                        next++;
                }
                int taken = rd_kafka_produce_batch(topic, RD_KAFKA_PARTITION_UA, flags, chunk, pending);
                if (taken < pending) {
                        /* The queue is full: keep those that were refused, in their order, until there is room. */
                        int kept = 0;
                        for (int i = 0; i < pending; i++) {
                                if (chunk[i].err == 0)
                                        continue;
                                if (chunk[i].err != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                                        die("produce", rd_kafka_err2str(chunk[i].err));
                                chunk[kept] = chunk[i];
                                chunk[kept++].err = 0;
                        }
                        pending = kept;
                        rd_kafka_poll(rk, 10);
                } else {
                        pending = 0;
                        rd_kafka_poll(rk, 0);
                }
        }
}

static void run_produce(void) {
        load_payloads();
        rd_kafka_t *rk = new_client(RD_KAFKA_PRODUCER);
        rd_kafka_topic_t *topic = new_topic(rk);
        /* Connections and metadata come before the clock starts; a topic dealt by hand keeps its exact counts. */
        long warmup = options.run ? 0 : 1;
        if (warmup) {
                produce_one(rk, topic, 0, RD_KAFKA_PARTITION_UA);
                await_deliveries(rk, 1);
                if (failed)
                        die("first message", rd_kafka_err2str(first_error));
        }
        ready_then_go();
        double cpu_before_s = cpu_s();
        int64_t start_ns = now_ns();
        produce_all(rk, topic);
        await_deliveries(rk, warmup + options.messages);
        int64_t end_ns = now_ns();
        printf("{\"messages\":%ld,\"failed\":%ld,\"bytes\":%ld,\"elapsed_s\":%.6f,\"client_cpu_s\":%.3f,"
               "\"first_error\":\"%s\"}\n",
               delivered - warmup, (long)failed, (delivered - warmup) * options.size_bytes, (end_ns - start_ns) / 1e9,
               cpu_s() - cpu_before_s, failed ? rd_kafka_err2str(first_error) : "");
}

static void run_consume(void) {
        rd_kafka_t *rk = new_client(RD_KAFKA_CONSUMER);
        rd_kafka_topic_t *topic = new_topic(rk);
        rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
        rd_kafka_message_t *chunk[CHUNK_MESSAGES];
        long messages = 0, bytes = 0;
        ready_then_go();
        double cpu_before_s = cpu_s();
        int64_t start_ns = now_ns(), seen_at_ns = start_ns;
        for (int partition = 0; partition < options.partitions; partition++)
                if (rd_kafka_consume_start_queue(topic, partition, RD_KAFKA_OFFSET_BEGINNING, queue) != 0)
                        die("consume", rd_kafka_err2str(rd_kafka_last_error()));
        while (messages < options.messages) {
                ssize_t got = rd_kafka_consume_batch_queue(queue, 1000, chunk, CHUNK_MESSAGES);
                for (ssize_t i = 0; i < got; i++) {
                        if (chunk[i]->err && chunk[i]->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
                                die("consume", rd_kafka_err2str(chunk[i]->err));
                        if (!chunk[i]->err) {
                                messages++;
                                bytes += chunk[i]->len;
                        }
                        rd_kafka_message_destroy(chunk[i]);
                }
                if (got > 0)
                        seen_at_ns = now_ns();
                else if (now_ns() - seen_at_ns > STALL_TIMEOUT_S * 1000000000LL)
                        die("stalled", "no message for too long");
        }
        int64_t end_ns = now_ns();
        printf("{\"messages\":%ld,\"failed\":0,\"bytes\":%ld,\"elapsed_s\":%.6f,\"client_cpu_s\":%.3f}\n", messages,
               bytes, (end_ns - start_ns) / 1e9, cpu_s() - cpu_before_s);
}

/* What travels at the head of a latency probe, before the ordinary payload. */
typedef struct {
        int64_t sequence, sent_at_ns;
} stamp_t;

static int64_t *latencies_ns;
static atomic_long received, measured;
static long warmup_count, probe_count;
static atomic_int finished;

static void *consume_probes(void *argument) {
        rd_kafka_queue_t *queue = argument;
        rd_kafka_message_t *chunk[CHUNK_MESSAGES];
        while (!finished) {
                ssize_t got = rd_kafka_consume_batch_queue(queue, 100, chunk, 1);
                int64_t at_ns = now_ns();
                for (ssize_t i = 0; i < got; i++) {
                        stamp_t stamp;
                        if (!chunk[i]->err && chunk[i]->len >= sizeof stamp) {
                                memcpy(&stamp, chunk[i]->payload, sizeof stamp);
                                received++;
                                if (stamp.sequence >= warmup_count && stamp.sequence < probe_count)
                                        latencies_ns[measured++] = at_ns - stamp.sent_at_ns;
                        }
                        rd_kafka_message_destroy(chunk[i]);
                }
        }
        return NULL;
}

static void *serve_deliveries(void *argument) {
        while (!finished)
                rd_kafka_poll(argument, 100);
        return NULL;
}

static int ascending(const void *left, const void *right) {
        int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
        return (a > b) - (a < b);
}

static double percentile_ms(double share) {
        long index = (long)(share * (measured - 1) + 0.5);
        return latencies_ns[index] / 1e6;
}

static void send_probe(rd_kafka_topic_t *topic, char *record, int64_t sequence) {
        stamp_t stamp = {sequence, now_ns()};
        memcpy(record, payload(sequence < 0 ? 0 : sequence), options.size_bytes);
        memcpy(record, &stamp, sizeof stamp);
        if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, record, options.size_bytes, NULL, 0, NULL) != 0)
                die("produce", rd_kafka_err2str(rd_kafka_last_error()));
}

static void run_latency(void) {
        load_payloads();
        if (options.size_bytes < (long)sizeof(stamp_t))
                die("size", "too small for the time stamp");
        /* The default slack of 50 us would blur the pace of the probes. */
        prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
        warmup_count = options.rate * options.warmup_s;
        probe_count = warmup_count + options.rate * options.duration_s;
        latencies_ns = calloc(probe_count, sizeof *latencies_ns);
        char *record = malloc(options.size_bytes);
        rd_kafka_t *producer = new_client(RD_KAFKA_PRODUCER), *consumer = new_client(RD_KAFKA_CONSUMER);
        rd_kafka_topic_t *produced = new_topic(producer), *consumed = new_topic(consumer);
        rd_kafka_queue_t *queue = rd_kafka_queue_new(consumer);
        if (rd_kafka_consume_start_queue(consumed, 0, RD_KAFKA_OFFSET_END, queue) != 0)
                die("consume", rd_kafka_err2str(rd_kafka_last_error()));
        pthread_t consuming, serving;
        pthread_create(&consuming, NULL, consume_probes, queue);
        pthread_create(&serving, NULL, serve_deliveries, producer);
        int64_t begun_ns = now_ns();
        while (received == 0) {
                send_probe(produced, record, -1);
                usleep(50000);
                if (now_ns() - begun_ns > STALL_TIMEOUT_S * 1000000000LL)
                        die("stalled", "no probe came through");
        }
        ready_then_go();
        double cpu_before_s = cpu_s();
        int64_t start_ns = now_ns();
        for (long sequence = 0; sequence < probe_count; sequence++) {
                int64_t due_ns = start_ns + sequence * 1000000000LL / options.rate;
                struct timespec due = {due_ns / 1000000000, due_ns % 1000000000};
                while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
                        ;
                send_probe(produced, record, sequence);
        }
        rd_kafka_flush(producer, 10000);
        int64_t patience_ns = now_ns() + 10 * 1000000000LL;
        while (measured < probe_count - warmup_count && now_ns() < patience_ns)
                usleep(1000);
        double elapsed_s = (now_ns() - start_ns) / 1e9, cpu_used_s = cpu_s() - cpu_before_s;
        finished = 1;
        pthread_join(consuming, NULL);
        pthread_join(serving, NULL);
        if (measured == 0)
                die("latency", "no probe came back");
        qsort(latencies_ns, measured, sizeof *latencies_ns, ascending);
        printf("{\"messages\":%ld,\"missing\":%ld,\"failed\":%ld,\"elapsed_s\":%.6f,\"client_cpu_s\":%.3f,"
               "\"p50_ms\":%.4f,\"p90_ms\":%.4f,\"p99_ms\":%.4f,\"p999_ms\":%.4f,\"max_ms\":%.4f}\n",
               (long)measured, probe_count - warmup_count - measured, (long)failed, elapsed_s, cpu_used_s,
               percentile_ms(0.50), percentile_ms(0.90), percentile_ms(0.99), percentile_ms(0.999),
               percentile_ms(1.0));
}

static void run_first(void) {
        load_payloads();
        rd_kafka_t *rk = new_client(RD_KAFKA_PRODUCER);
        rd_kafka_topic_t *topic = new_topic(rk);
        ready_then_go();
        int64_t deadline_ns = now_ns() + FIRST_TIMEOUT_S * 1000000000LL;
        produce_one(rk, topic, 0, RD_KAFKA_PARTITION_UA);
        while (delivered + failed == 0 && now_ns() < deadline_ns)
                rd_kafka_poll(rk, 10);
        if (delivered == 0)
                die("first message", failed ? rd_kafka_err2str(first_error) : "not acknowledged in time");
        printf("{\"acknowledged_at_ns\":%lld}\n", (long long)delivered_at_ns);
}

int main(int argc, char **argv) {
        const char *mode = argc > 1 ? argv[1] : "";
        setvbuf(stdout, NULL, _IOLBF, 0);
        optind = 2;
        for (int letter; (letter = getopt(argc, argv, "t:n:f:s:p:r:R:w:d:X:P:C:")) != -1;) {
                switch (letter) {
                case 't': options.topic = optarg; break;
                case 'n': options.messages = atol(optarg); break;
                case 'f': options.payloads_path = optarg; break;
                case 's': options.size_bytes = atol(optarg); break;
                case 'p': options.partitions = atol(optarg); break;
                case 'r': options.run = atol(optarg); break;
                case 'R': options.rate = atol(optarg); break;
                case 'w': options.warmup_s = atol(optarg); break;
                case 'd': options.duration_s = atol(optarg); break;
                case 'X':
                case 'P':
                case 'C':
                        if (options.property_count == PROPERTIES_MAX)
                                die("properties", "too many");
                        options.property_of[options.property_count] = (char)letter;
                        options.properties[options.property_count++] = optarg;
                        break;
                default: die("usage", "see the head of loadgen.c");
                }
        }
        if (options.topic == NULL)
                die("usage", "-t TOPIC is needed");
        if (strcmp(mode, "produce") == 0)
                run_produce();
        else if (strcmp(mode, "consume") == 0)
                run_consume();
        else if (strcmp(mode, "latency") == 0)
                run_latency();
        else if (strcmp(mode, "first") == 0)
                run_first();
        else
                die("unknown mode", mode);
        fflush(stdout);
        /* Its clients go with the process: an orderly end would only add time. */
        _exit(0);
}
