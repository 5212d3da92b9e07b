#include "driver/options/options.h"

const CommandText command_texts[COMMAND_COUNT] = {
    [COMMAND_CHECK] =
        {"check",
         "import a model and say what is in it",
         {"skycc check MODEL.onnx [options]"},
         "Imports the model and says what is in it: operators, inputs, parameters, layers, and what deserves a "
         "warning.\nDimensions that are not bound are taken to be 8.\n"},
    [COMMAND_BERT] =
        {"bert",
         "write a BERT graph of any size",
         {"skycc bert --layers L --hidden H --heads A [options] -o MODEL.onnx"},
         "Writes a BERT as an ONNX graph (opset 17): inputs input_ids, attention_mask and token_type_ids, output "
         "logits.\n"},
    [COMMAND_COMPILE] =
        {"compile",
         "model and cluster in, a directory of ready-to-run programs out",
         {"skycc compile MODEL.onnx -d CLUSTER.yaml -o DIR [options]"},
         "Derives the training program of a BERT-family model, partitions its layers over the devices of the cluster "
         "and\n"
         "leaves one native program per device in DIR, ready to run: DIR/train --data DATA.safetensors --steps 100\n"},
    [COMMAND_PROBE] =
        {"probe",
         "time a model's kernels on this machine",
         {"skycc probe [MODEL.onnx] -d CLUSTER.yaml -o PROFILE.json [options]",
          "mpiexec -n DEVICES ... skycc probe [MODEL.onnx] -d CLUSTER.yaml -o PROFILE.json [options]",
          "skycc probe --site NAME --key NAME.key -d CLUSTER.yaml -o PROFILE.json [options]"},
         "Measures this machine and, of a model, its compiled kernels. With the profile, skycc plan and "
         "compile use these\n"
         "times, multiplied by each device's slowdown, instead of estimates from the device "
         "specifications. Where mpiexec\n"
         "starts one process per device, in the order of the cluster file, every device gets times of "
         "its own, and the\n"
         "links between hosts are measured too. With --site at every site the links between sites are.\n"},
    [COMMAND_PLAN] =
        {"plan",
         "assign layers to devices and prove how good that is",
         {"skycc plan MODEL.onnx -d CLUSTER.yaml [options]", "skycc plan --costs COSTS.json [options]",
          "skycc plan MODEL.onnx --federation FEDERATION.yaml [options]"},
         "Assigns the layers of a model to the devices of a cluster and proves how good the assignment is. Of a "
         "federation it\ncompares one pipeline over all sites, a replica at each, and groups of sites as replicas.\n"},
    [COMMAND_EXPLAIN] = {"explain",
                         "a plan in words, beside the trace of a run",
                         {"skycc explain PLAN.json [--trace TRACE.json]"},
                         "Prints a plan as text. With the trace of a run (DIR/train --trace FILE) it sets what was "
                         "measured beside what the\n"
                         "plan predicted; a step lasts from the last update of the one before to its own. The first "
                         "step, in which everything\n"
                         "is touched for the first time, does not count where there are "
                         "more.\n"},
    [COMMAND_DIFF] = {"diff",
                      "what changed between two plans",
                      {"skycc diff OLD.json NEW.json [--fail-above SECONDS]"},
                      "Prints what differs between two plans: times, bound, which layers moved to which device, loads, "
                      "memory, links\nand what crosses between regions. Exits 0 also when they differ.\n"},
    [COMMAND_VERIFY] = {"verify",
                        "check a plan and its proof, independently of the solver",
                        {"skycc verify PLAN.json --costs COSTS.json [--audit FILE]..."},
                        "Recomputes every number of a plan from the costs, its lists of instructions and crossings "
                        "included, runs its\nschedule in the simulator and checks the certificate of its lower bound, "
                        "or of that nothing fits, with exact\nintegers. Of what other allocators reach it checks "
                        "that none beats the certified bound. A plan that calls itself\nproven optimal must prove "
                        "it; a bound above the certified one rests on the solver's search, and verify\nsays so. "
                        "Exits 1, saying why, if anything is not as the\n"
                        "plan says. With --audit: nor may anything have crossed between sites that is not in it.\n"},
    [COMMAND_PLOT] =
        {"plot",
         "the losses of a run, drawn",
         {"skycc plot LOG.csv [-o LOSS.svg]"},
         "Draws the losses that DIR/train --log FILE wrote, and those of evaluations, or of a federation those "
         "that skycc\ncoordinate --log FILE wrote, a line for each site and one for the mean: one SVG file "
         "that needs nothing else\n"
         "and follows the reader's light or dark colours. A log that a run is still writing is drawn as "
         "far as it goes.\n"},
    [COMMAND_RUN] =
        {"run",
         "run a model here: outputs, loss, gradients, some training steps",
         {"skycc run MODEL.onnx --inputs FILE... -o OUT.safetensors [options]"},
         "Compiles the model for this machine, runs it and writes out/NAME for every output of the graph; with "
         "--loss\nalso the loss.\n"},
    [COMMAND_EXPORT] = {"export",
                        "write trained weights back into ONNX",
                        {"skycc export MODEL.onnx CHECKPOINT -o TRAINED.onnx",
                         "skycc export MODEL.onnx CHECKPOINT --folder DIR [--source FOLDER] [--labels DATA]",
                         "skycc export MODEL.onnx CHECKPOINT --adapter DIR"},
                        "Writes the model with the weights of a checkpoint. What --lora trained is added to the "
                        "weights, or written as an\nadapter of its own.\n"},
    [COMMAND_TOKENIZE] =
        {"tokenize",
         "turn rows of text into a data set of token ids",
         {"skycc tokenize --tokenizer tokenizer.json --text COL[,COL] --label COL TABLE -o DATA.safetensors [options]",
          "skycc tokenize --vocab VOCAB.txt --task TASK TSV -o DATA.safetensors [options]"},
         "Turns rows of text into padded token ids and labels for training: input_ids, attention_mask, token_type_ids, "
         "lengths,\nlabels. TABLE is TSV, CSV or JSON lines, - for standard input. With --task, columns are found by "
         "name in the first line\n(sentence1, sentence2 or sentence; label or gold_label), else by the positions GLUE "
         "gives the task.\n"},
    [COMMAND_IMPORT] =
        {"import",
         "make an ONNX graph of a Hugging Face folder",
         {"skycc import FOLDER -o MODEL.onnx [--head HEAD]"},
         "Reads config.json and model.safetensors of a BERT, RoBERTa, XLM-R, CamemBERT, DistilBERT, ELECTRA, ALBERT, "
         "MPNet,\nModernBERT or DeBERTa-v2/3 and writes the graph, ready for check, run and compile.\n"},
    [COMMAND_HEAD] = {"head",
                      "put a head on an encoder that is an ONNX model",
                      {"skycc head MODEL.onnx --head HEAD -o OUT.onnx"},
                      "Writes the model with new outputs. Of a model that skycc import made the head is the one of its "
                      "family, of any "
                      "other\nBERT's.\n"},
    [COMMAND_PREDICT] =
        {"predict",
         "what a model that was trained says of texts",
         {"skycc predict MODEL [CHECKPOINT] --text TEXT [--text2 TEXT] [options]",
          "skycc predict MODEL [CHECKPOINT] --data DATA.safetensors [options]",
          "skycc predict MODEL [CHECKPOINT] --data TABLE --text COL[,COL] [options]"},
         "Says what the model makes of a text, a pair of texts or many of them, as CSV: labels and scores of texts, or "
         "of words\n(tokcls, by their first tokens), a number, the answer to the question --text in --text2 and where "
         "it stands (qa), the five\nlikeliest pieces for each mask written in a text (mlm), or an embedding; with "
         "--text2 "
         "how alike two texts' embeddings\nare. MODEL is an ONNX graph, or the folder of a Hugging Face model.\n"},
    [COMMAND_KEY] =
        {"key",
         "make the key of a site",
         {"skycc key NAME"},
         "Writes NAME.key, the secret key that stays with the site, and NAME.pub, and prints the public key, "
         "which the others\nput in the cluster file (sites: [{name: ..., key: ...}]). Neither file may "
         "exist.\n"},
    [COMMAND_FEDERATE] =
        {"federate",
         "a folder for every site of a federation, which keeps its data and shares the model",
         {"skycc federate MODEL.onnx -c FEDERATION.yaml -o DIR [options]"},
         "Compiles the model for the devices of every site. Each trains on its own rows, and their models are averaged "
         "now and\nthen, so that nobody sees another's: DIR/SITE/train --join --data DATA.safetensors --checkpoint "
         "CHECKPOINT\n"},
    [COMMAND_COORDINATE] = {"coordinate",
                            "be the coordinator of a federation, until its last round",
                            {"skycc coordinate DIR/coordinator [options]"},
                            "Waits for the sites of a federation, adds up their updates and keeps the model, in "
                            "DIR/coordinator/model.safetensors.\nKilled at any point, it goes on from there.\n"},
    [COMMAND_DEPLOY] =
        {"deploy",
         "copy programs, weights and data to the hosts of a plan, or say what they lack",
         {"skycc deploy DIR [--data FILE] [--to PATH]", "skycc deploy DIR --check [--data FILE] [--to PATH]"},
         "Copies by ssh what each host of a plan needs of DIR, which skycc compile left: its programs, its part of the "
         "weights,\nthe data if they are named. What is there with the right hash is not sent again, and a transfer "
         "that was cut goes on.\nWith --check nothing is copied: a table says which host has what a run needs, "
         "and messages what is missing.\nDIR/SITE is for the hosts of a site. Exits 6 if a host is not ready, or "
         "could not be made so.\n"},
};
